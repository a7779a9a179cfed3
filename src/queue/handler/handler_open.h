/*
 * The handlers of idem consume: a program per message (--exec), long-lived workers
 * (--exec-jsonl), an HTTP endpoint (--to). They know neither brokers nor stores.
 *
 * The process around them must treat SIGPIPE and SIGCHLD as loop/signals.h does, and keep
 * descriptors 0 to 2 open. The loop's host is level-triggered.
 */
#ifndef IDEM_QUEUE_HANDLER_HANDLER_OPEN_H
#define IDEM_QUEUE_HANDLER_HANDLER_OPEN_H

#include "base/words.h"
#include "loop/loop.h"
#include "loop/signals.h"
#include "queue/handler.h"

/*
 * Maps a status to the result for a message: the exit status of a program (--on-exit), or the
 * status of an HTTP response (--on-status).
 */

/* done, retry, dead, unknown: the words for an enum queue_result. */
extern const struct idem_word handler_results[];

#define HANDLER_STATUS_MAX 599

/* Each is an enum queue_result, or 0 if there is no rule. An exact number takes precedence over
   its class, and the class over the rest. */
struct handler_rules {
    unsigned char exact[HANDLER_STATUS_MAX + 1];
    unsigned char classes[HANDLER_STATUS_MAX / 100 + 1]; /* 4: 400 to 499 */
    unsigned char rest;
};

/*
 * Reads "65=dead,1=retry,*=unknown" over the defaults; NULL: the defaults. 0 is done, and
 * cannot be changed; 75 (EX_TEMPFAIL) is retry; 129 to 192, a shell's statuses for commands
 * ended by a signal, are unknown; every other status is `*`, which is retry. Results are done,
 * retry, dead and unknown. IDEM_E_INVALID comes with the fault and the allowed form.
 */
int handler_on_exit_parse(const char *text, struct handler_rules *ret, struct idem_error *err);

/*
 * Reads "404=retry,5xx=dead" over the defaults, which are 2xx=done, 3xx=dead, 4xx=dead,
 * 409=retry, 425=retry, 429=retry, 5xx=retry, 502=unknown, 504=unknown, 503=retry: 5xx=dead
 * leaves the last three unchanged. Every other status is unknown.
 */
int handler_on_status_parse(const char *text, struct handler_rules *ret, struct idem_error *err);

enum queue_result handler_rule(const struct handler_rules *rules, int status);

#define HANDLER_WORKERS_MAX 1024
/* The longest delay that a handler can request; a longer one is cut to it. */
#define HANDLER_DELAY_MAX_MS (24 * 3600 * INT64_C(1000))

/* An open handler. */
struct handler {
    struct queue_handler queue; /* to be passed to the consumer */
    void (*close)(void *data);
};

/* Ends the runs in progress without reporting them, and waits for that as described below. Not
   to be called inside a callback. A handler that is all zeros counts as closed. */
void handler_close(struct handler *handler);

/* The way programs are run. */
struct handler_program {
    const char *command;           /* for /bin/sh -c */
    const struct signals *signals; /* restored in the program; NULL: none were taken. Borrowed */
    int64_t kill_after_ms;         /* from SIGTERM to SIGKILL */
    int die_with; /* the signal that the program gets when this process is killed (SIGTERM if
                     another consumer may run the message then: recover=rerun); 0: none */
};

/* Returns 0 or IDEM_E_INVALID: checks the settings that both kinds of programs share. */
int handler_open_check_workers(unsigned workers, struct idem_error *err);
int handler_open_check_program(const char *option, const struct handler_program *program,
                               unsigned workers, struct idem_error *err);

/*
 * --exec: one process per message. Its stdin is the body (a file in memory, so a process that
 * does not read it causes no wait). It gets IDEM_* variables (handler_exec.c), and our
 * stdout and stderr. It is over when the process has ended, even if it left children behind.
 *
 *     exit status       decided by `on_exit`
 *     a signal          unknown
 *     cancelled         unknown, with any exit status: many programs end with 0 when
 *                       they are asked to. Its group gets SIGTERM, then SIGKILL
 *     not started       unbegun: no process, no memory, or the lease is over
 *
 * Closing kills the processes.
 */
struct handler_exec_config {
    struct handler_program program;
    const struct handler_rules *on_exit; /* copied; NULL: the defaults */
    unsigned workers;
};
int handler_exec_open(const struct handler_exec_config *config, struct idem_loop *loop,
                      struct handler *ret, struct idem_error *err);

/*
 * --exec-jsonl: long-lived processes with our stderr. Each has one message at a time, by a
 * line of JSON in and a line out (handler_answer.h).
 *
 *     a response           the result that it states
 *     any other output, a line without a request, more than 64 KiB, stdout closed
 *                          unknown, and the worker is killed; the reason states the
 *                          fault, never the output
 *     it dies              unknown; unbegun if no byte of the message was read, or,
 *                          if it has responded before, another worker gets the job
 *     cancelled            its group gets SIGTERM, then SIGKILL. A late response
 *                          still counts; else unknown
 *     it cannot be started unbegun
 *
 * A worker that ends is started again: at once if it has responded or was ten seconds old,
 * else after a pause that grows from 100 ms to 30 s.
 *
 * Closing closes their stdin, waits for a second, then sends SIGTERM, and kills them after
 * kill_after_ms: it blocks that long.
 */
struct handler_jsonl_config {
    struct handler_program program;
    unsigned workers;
};
int handler_jsonl_open(const struct handler_jsonl_config *config, struct idem_loop *loop,
                       struct handler *ret, struct idem_error *err);

/*
 * --to: a POST to an endpoint. The body is unchanged. The header has Idempotency-Key (the key
 * as a string of structured fields if it is printable ASCII of up to 255 bytes, else the
 * record's hash), Idem-Attempt, Idem-Downstream-Key, Content-Type, Content-Encoding, and the
 * message's own headers if they are text, are valid HTTP fields, belong neither to the
 * connection nor to Idem, and are no credentials. At most 64 of them pass, 8 KiB in all;
 * Idem-Omitted is the number of the others.
 *
 *     a whole response     Idem-Outcome decides (done; release: retry; keep: dead;
 *                          unknown), else `on_status` by its status.
 *                          Retry-After sets the delay of a retry
 *     nothing was sent     unbegun: no connection, no name, no TLS, the lease over
 *     anything else        unknown: a timeout, a broken connection, cancelled
 *
 * Connections are kept alive. No proxies, no redirects, no cookies: a message goes to the URL.
 * Closing does not wait.
 */
struct handler_to_config {
    const char *url;
    const char *prefix;  /* of the policy: for Idem-Downstream-Key */
    const char *ca_file; /* certificate authorities for an https endpoint; NULL: the system's */
    const struct handler_rules *on_status; /* copied; NULL: the defaults */
    int64_t timeout_ms;
    unsigned workers;
};
int handler_to_open(const struct handler_to_config *config, struct idem_loop *loop,
                    struct handler *ret, struct idem_error *err);

#endif
