/*
 * Long-lived workers: works wait until a worker is idle. A work that cannot be begun (no
 * worker can be started, the lease is over) is reported as unbegun, and counts as no attempt.
 */
#include "queue/handler/handler_jsonl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

/* Time for workers to end by themselves after their stdin is closed. */
#define FAREWELL_MS 1000

/* Jobs. */

void jsonl_job_report(struct jsonl_job *job, const struct queue_said *said) {
    struct queue_work *work = job->work;

    job->work = NULL;
    job->worker = NULL;
    job->next = job->jsonl->free;
    job->jsonl->free = job;
    /* Its worker, or another, may take the next job. */
    idem_task_post(job->jsonl->loop, &job->jsonl->dispatch);
    work->told(work, said);
}

static void jsonl_job_wait(struct jsonl_job *job) {
    struct jsonl *jsonl = job->jsonl;

    job->next = NULL;
    *jsonl->waiting_end = job;
    jsonl->waiting_end = &job->next;
}

void jsonl_job_retry(struct jsonl_job *job) {
    struct jsonl *jsonl = job->jsonl;

    job->worker = NULL;
    job->next = jsonl->waiting;
    jsonl->waiting = job;
    if (job->next == NULL)
        jsonl->waiting_end = &job->next;
    idem_task_post(jsonl->loop, &jsonl->dispatch);
}

/* Removes the job from the waiting ones; NULL: the first. */
static struct jsonl_job *jsonl_take_job(struct jsonl *jsonl, struct jsonl_job *job) {
    struct jsonl_job **at = &jsonl->waiting;

    while (*at != NULL && job != NULL && *at != job)
        at = &(*at)->next;
    job = *at;
    if (job == NULL)
        return NULL;
    *at = job->next;
    if (jsonl->waiting_end == &job->next)
        jsonl->waiting_end = at;
    return job;
}

static void jsonl_job_unbegun(struct jsonl_job *job, const char *reason) {
    struct queue_said said = {.result = QUEUE_UNBEGUN, .reason = reason};

    jsonl_job_report(job, &said);
}

static void jsonl_report_cancelled(struct idem_task *task) {
    jsonl_job_unbegun(idem_container_of(task, struct jsonl_job, tell),
                      "it was cancelled before a worker had it");
}

/* Dispatch. */

static struct jsonl_worker *jsonl_find_idle(struct jsonl *jsonl) {
    for (unsigned i = 0; i < jsonl->workers; i++)
        if (jsonl->pool[i].state == JSONL_IDLE)
            return &jsonl->pool[i];
    return NULL;
}

static void jsonl_dispatch(struct idem_task *task) {
    struct jsonl *jsonl = idem_container_of(task, struct jsonl, dispatch);
    struct jsonl_worker *worker;
    struct jsonl_job *job;

    while (jsonl->waiting != NULL && (worker = jsonl_find_idle(jsonl)) != NULL) {
        job = jsonl_take_job(jsonl, NULL);
        if (idem_loop_now() >= job->work->not_after)
            jsonl_job_unbegun(job, "the lease was over before a worker was free");
        else
            jsonl_worker_give(worker, job);
    }
}

void jsonl_start_failed(struct jsonl *jsonl, int why, int64_t pause_ms) {
    struct jsonl_job *job;
    char reason[256];

    for (unsigned i = 0; i < jsonl->workers; i++)
        if (jsonl->pool[i].state != JSONL_OFF)
            return; /* the waiting jobs can wait for this worker */
    job = jsonl_take_job(jsonl, NULL);
    if (job == NULL)
        return;
    snprintf(reason, sizeof(reason), "no worker can be started: %s; it is tried again in %lld ms",
             strerror(why), (long long)pause_ms);
    jsonl_job_unbegun(job, reason);
}

static void jsonl_begin(void *data, struct queue_work *work) {
    struct jsonl *jsonl = data;
    struct jsonl_job *job = jsonl->free;

    if (job == NULL) /* the caller exceeded `workers` */
        abort();
    jsonl->free = job->next;
    job->work = work;
    work->at = job;
    jsonl_job_wait(job);
    idem_task_post(jsonl->loop, &jsonl->dispatch);
}

static void jsonl_cancel(void *data, struct queue_work *work) {
    struct jsonl *jsonl = data;
    struct jsonl_job *job = work->at;

    if (job->worker != NULL)
        jsonl_worker_cancel(job->worker);
    else if (jsonl_take_job(jsonl, job) != NULL)
        idem_task_post(jsonl->loop, &job->tell);
}

/* Creation and release. */

/* All workers are asked at once, so that they share one timeout. */
static void jsonl_end_workers(struct jsonl *jsonl) {
    int64_t until = idem_loop_now() + FAREWELL_MS;

    for (unsigned i = 0; i < jsonl->workers; i++)
        jsonl_worker_hang_up(&jsonl->pool[i]);
    for (unsigned i = 0; i < jsonl->workers; i++)
        if (!handler_process_wait(&jsonl->pool[i].process, until - idem_loop_now()))
            handler_process_end(&jsonl->pool[i].process);
    until = idem_loop_now() + jsonl->program.kill_after_ms;
    for (unsigned i = 0; i < jsonl->workers; i++)
        (void)handler_process_wait(&jsonl->pool[i].process, until - idem_loop_now());
    for (unsigned i = 0; i < jsonl->workers; i++)
        jsonl_worker_release(&jsonl->pool[i]);
}

static void jsonl_close(void *data) {
    struct jsonl *jsonl = data;

    if (jsonl->nest.batch != NULL)
        jsonl_end_workers(jsonl);
    for (unsigned i = 0; jsonl->jobs != NULL && i < jsonl->workers; i++)
        idem_task_drop(jsonl->loop, &jsonl->jobs[i].tell);
    idem_task_drop(jsonl->loop, &jsonl->dispatch);
    idem_nest_close(&jsonl->nest);
    free(jsonl->jobs);
    free(jsonl->command);
    free(jsonl);
}

static int jsonl_init(struct jsonl *jsonl, const struct handler_jsonl_config *config,
                      struct idem_error *err) {
    int rc;

    jsonl->program = config->program;
    jsonl->workers = config->workers;
    jsonl->waiting_end = &jsonl->waiting;
    jsonl->dispatch.run = jsonl_dispatch;
    jsonl->command = strdup(config->program.command);
    jsonl->jobs = calloc(config->workers, sizeof(*jsonl->jobs));
    if (jsonl->command == NULL || jsonl->jobs == NULL)
        return idem_error_set(err, IDEM_E_NOMEM, "no memory for a handler");
    rc = idem_nest_open(&jsonl->nest, jsonl->loop, err);
    if (rc < 0)
        return rc;
    for (unsigned i = config->workers; i-- > 0;) {
        jsonl->jobs[i] = (struct jsonl_job){
            .jsonl = jsonl, .tell.run = jsonl_report_cancelled, .next = jsonl->free};
        jsonl->free = &jsonl->jobs[i];
        jsonl_worker_init(&jsonl->pool[i], jsonl);
    }
    return 0;
}

int handler_jsonl_open(const struct handler_jsonl_config *config, struct idem_loop *loop,
                       struct handler *ret, struct idem_error *err) {
    struct jsonl *jsonl;
    int rc = handler_open_check_program("--exec-jsonl", &config->program, config->workers, err);

    if (rc < 0)
        return rc;
    jsonl = calloc(1, sizeof(*jsonl) + config->workers * sizeof(jsonl->pool[0]));
    if (jsonl == NULL)
        return idem_error_set(err, IDEM_E_NOMEM, "no memory for a handler");
    jsonl->loop = loop;
    rc = jsonl_init(jsonl, config, err);
    if (rc < 0) {
        jsonl_close(jsonl);
        return rc;
    }
    *ret = (struct handler){
        .queue = {.data = jsonl,
                  .workers = config->workers,
                  .begin = jsonl_begin,
                  .cancel = jsonl_cancel},
        .close = jsonl_close,
    };
    return 0;
}
