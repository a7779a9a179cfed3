/*
 * Fails every allocation in turn, in each handler: there is exactly one result,
 * which is done, unbegun or (if the request was sent already) unknown; and
 * nothing is leaked.
 */
#include "contract/alloc_each.h"
#include "endpoint.h"
#include "handler_rig.h"

static struct item item;
static bool may_be_unknown;

static void item_reset(void) {
    struct item *fresh = item_new("{\"order\": 1}");

    CHECK(fresh != NULL);
    item = *fresh;
    item.message.headers = item.headers;
    item.message.properties = item.properties;
    item.run.message = &item.message;
    item_header(&item, "X-A", "b");
    item_property(&item, "content_type", "text/plain");
    free(fresh);
}

static int scenario_with(int (*open)(struct handler_rig *rig, struct idem_error *err),
                         struct idem_error *err) {
    struct handler_rig rig;
    int rc;

    item.reports = 0;
    handler_rig_init(&rig);
    rc = open(&rig, err);
    if (rc < 0) {
        idem_poll_release(&rig.poll);
        err->code = rc == IDEM_E_REFUSED ? IDEM_E_NOMEM : rc; /* the poll loop has no better code */
        return err->code;
    }
    handler_rig_run(&rig, &item);
    handler_rig_close(&rig);
    if (item.outcome.result == QUEUE_DONE)
        return 0;
    CHECK(item.reason[0] != '\0');
    if (!may_be_unknown)
        CHECK_SAID(&item, QUEUE_UNBEGUN);
    CHECK(item.outcome.result == QUEUE_UNBEGUN || item.outcome.result == QUEUE_UNKNOWN);
    snprintf(err->text, sizeof(err->text), "%.400s", item.reason);
    /* A machine may also be slower than a request's timeout: then the test tries again. */
    return err->code = may_be_unknown ? IDEM_E_UNKNOWN : IDEM_E_NOMEM;
}

static int exec_open(struct handler_rig *rig, struct idem_error *err) {
    return handler_exec_open(
        &(struct handler_exec_config){
            .program = {.command = "exit 0", .kill_after_ms = 100},
            .workers = 1,
        },
        &rig->loop, &rig->handler, err);
}

static int exec_scenario(struct idem_error *err) {
    return scenario_with(exec_open, err);
}

TEST(each_allocation_of_a_program_per_message_fails_cleanly) {
    item_reset();
    alloc_fail_each_both(exec_scenario, 5);
}

static int jsonl_open(struct handler_rig *rig, struct idem_error *err) {
    return handler_jsonl_open(
        &(struct handler_jsonl_config){
            .program = {.command = "while read -r l; do id=${l#*:}; echo \"{\\\"id\\\":${id%%,*}"
                                   ",\\\"result\\\":\\\"done\\\"}\"; done",
                        .kill_after_ms = 100},
            .workers = 1,
        },
        &rig->loop, &rig->handler, err);
}

static int jsonl_scenario(struct idem_error *err) {
    return scenario_with(jsonl_open, err);
}

TEST(each_allocation_of_a_worker_fails_cleanly) {
    item_reset();
    may_be_unknown = true; /* a response that cannot be read */
    alloc_fail_each_both(jsonl_scenario, 8);
}

#ifdef HAVE_CURL

static struct endpoint endpoint;

static int to_open(struct handler_rig *rig, struct idem_error *err) {
    char url[64];

    snprintf(url, sizeof(url), "http://127.0.0.1:%d/", endpoint.port);
    return handler_to_open(
        &(struct handler_to_config){
            .url = url, .prefix = "order:", .timeout_ms = 300, .workers = 1},
        &rig->loop, &rig->handler, err);
}

static int to_scenario(struct idem_error *err) {
    return scenario_with(to_open, err);
}

TEST(each_allocation_of_a_request_fails_cleanly) {
    endpoint = endpoint_start(false);
    item_reset();
    may_be_unknown = true;
    alloc_fail_each_both(to_scenario, 40);
    endpoint_stop(&endpoint);
}
#endif

TEST_MAIN
