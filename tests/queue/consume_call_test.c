/* idem_consume(): the action for a message of the user's own client. */
#include "idem.h"
#include "temp.h"
#include "test.h"
#include "wait.h"

static struct idem *h;
static struct idem_guard *guards[4]; /* until the test's end */
static size_t guards_n;
static int runs;

static enum idem_result say(struct idem_run *run, void *data) {
    runs++;
    idem_run_set_reason(run, "said by the test");
    return *(enum idem_result *)data;
}

static enum idem_result say_later(struct idem_run *run, void *data) {
    (void)data;
    idem_run_set_delay(run, 3600000);
    return IDEM_RESULT_RETRY;
}

static struct idem_guard *guard_of(struct idem_policy policy) {
    static const struct idem_options options = {.op_timeout_ms = WAIT_LIMIT_S * 1000};
    struct idem_guard *guard = NULL;
    struct idem_error err = {0};

    if (h == NULL)
        CHECK_INT(idem_open(temp_url("store", "sync=off"), &options, &h, &err), 0);
    policy.prefix = "q:";
    policy.scope = IDEM_SCOPE_NONE;
    policy.preset = IDEM_PRESET_QUEUE;
    if (idem_guard_new(h, &policy, &guard, &err) < 0) {
        fprintf(stderr, "# %s\n", err.text);
        exit(1);
    }
    guards[guards_n++] = guard;
    return guard;
}

static struct idem_consumed consume(const struct idem_guard *guard, const char *id,
                                    const char *body, enum idem_result result) {
    struct idem_message message = {.body = body, .body_len = strlen(body), .id = id, .queue = "q"};
    struct idem_consumed got = {0};
    struct idem_error err = {0};

    if (idem_consume(h, guard, &message, say, &result, &got, &err) < 0) {
        fprintf(stderr, "# %s\n", err.text);
        exit(1);
    }
    return got;
}

TEST(a_message_is_handled_once_and_acknowledged_each_time) {
    struct idem_guard *guard = guard_of((struct idem_policy){.key_expr = "#body.orderId"});
    struct idem_consumed got = consume(guard, "m-1", "{\"orderId\": 7}", IDEM_RESULT_DONE);

    CHECK_INT(got.disposal, IDEM_CONSUME_ACK);
    CHECK_INT(got.verdict, IDEM_RUN);
    CHECK_INT(got.attempt, 1);
    CHECK_STR(got.trace, "m-1");
    CHECK_INT(strlen(got.key_hash), 64);
    got = consume(guard, "m-2", "{\"orderId\": 7}", IDEM_RESULT_DONE);
    CHECK_INT(got.disposal, IDEM_CONSUME_ACK);
    CHECK_INT(got.verdict, IDEM_DUPLICATE);
    CHECK_INT(runs, 1);
}

TEST(an_id_that_is_the_key_is_no_trace_for_logs) {
    struct idem_guard *guard = guard_of((struct idem_policy){0});
    struct idem_consumed got = consume(guard, "customer-4711", "{}", IDEM_RESULT_DONE);

    CHECK_INT(strlen(got.trace), 64);
    CHECK_STR(got.trace, got.key_hash);
}

TEST(a_failure_is_to_come_later_and_the_last_one_is_dead) {
    struct idem_guard *guard = guard_of((struct idem_policy){
        .attempts = 2, .backoff_min_ms = 50, .backoff_max_ms = 50, .key_expr = "#body.id"});
    struct idem_consumed got = consume(guard, NULL, "{\"id\": 1}", IDEM_RESULT_RETRY);

    CHECK_INT(got.disposal, IDEM_CONSUME_RETRY_LATER);
    CHECK_INT(got.retry_ms, 50);
    CHECK_STR(got.reason, "said by the test");
    /* The retry may not be due yet. */
    WAIT_UNTIL((got = consume(guard, NULL, "{\"id\": 1}", IDEM_RESULT_RETRY)).verdict !=
                   IDEM_BUSY ||
               got.disposal != IDEM_CONSUME_RETRY_LATER);
    CHECK_INT(got.disposal, IDEM_CONSUME_DEAD);
    CHECK_INT(got.attempt, 2);
    got = consume(guard, NULL, "{\"id\": 1}", IDEM_RESULT_DONE);
    CHECK_INT(got.disposal, IDEM_CONSUME_DEAD);
    CHECK_INT(got.verdict, IDEM_DEAD);
    CHECK_INT(runs, 2);
}

TEST(a_handler_may_say_when_it_wants_it_again) {
    struct idem_guard *guard = guard_of((struct idem_policy){0});
    struct idem_message message = {.id = "m-1"};
    struct idem_consumed got;

    CHECK_INT(idem_consume(h, guard, &message, say_later, NULL, &got, NULL), 0);
    CHECK_INT(got.disposal, IDEM_CONSUME_RETRY_LATER);
    CHECK_INT(got.retry_ms, 3600000);
    CHECK_INT(idem_consume(h, guard, &message, say_later, NULL, &got, NULL), 0);
    CHECK_INT(got.verdict, IDEM_BUSY);
    CHECK(got.retry_ms > 3000000 && got.retry_ms <= 3600000);
}

TEST(what_is_refused_is_dead_at_once) {
    struct idem_guard *guard = guard_of((struct idem_policy){0});

    CHECK_INT(consume(guard, "m-1", "", IDEM_RESULT_FINAL).disposal, IDEM_CONSUME_DEAD);
    CHECK_INT(consume(guard, "m-1", "", IDEM_RESULT_DONE).disposal, IDEM_CONSUME_DEAD);
    CHECK_INT(runs, 1);
}

TEST(another_body_under_the_same_id_is_dead_and_does_not_run) {
    struct idem_guard *guard = guard_of((struct idem_policy){0});

    CHECK_INT(consume(guard, "m-1", "{\"a\": 1}", IDEM_RESULT_DONE).disposal, IDEM_CONSUME_ACK);
    CHECK_INT(consume(guard, "m-1", "{\"a\":1}", IDEM_RESULT_DONE).verdict, IDEM_DUPLICATE);
    CHECK_INT(consume(guard, "m-1", "{\"a\": 2}", IDEM_RESULT_DONE).disposal, IDEM_CONSUME_DEAD);
    CHECK_INT(runs, 1);
}

TEST(a_message_without_a_key_is_dead_and_says_why) {
    struct idem_guard *guard = guard_of((struct idem_policy){.key_expr = "#body.orderId"});
    struct idem_guard *literal = guard_of((struct idem_policy){0});
    struct idem_consumed got = consume(guard, "m-1", "{}", IDEM_RESULT_DONE);

    CHECK_INT(got.disposal, IDEM_CONSUME_DEAD);
    CHECK_INT(got.code, IDEM_E_INVALID);
    CHECK_INT(got.verdict, 0);
    CHECK_HAS(got.reason, "no such member");
    CHECK(strchr(got.reason, '\n') == NULL);
    got = consume(literal, NULL, "{}", IDEM_RESULT_DONE);
    CHECK_INT(got.disposal, IDEM_CONSUME_DEAD);
    CHECK_INT(runs, 0);
}

TEST(a_store_that_is_not_reached_is_later_and_nothing_runs) {
    struct idem_guard *guard = guard_of((struct idem_policy){0});
    enum idem_result result = IDEM_RESULT_DONE;
    struct idem_message message = {.id = "m-1"};
    struct idem_consumed got;
    struct idem_error err;
    struct idem *gone;

    CHECK_INT(
        idem_open("redis://127.0.0.1:1?timeout=200ms&connect_timeout=100ms", NULL, &gone, &err), 0);
    CHECK_INT(idem_consume(gone, guard, &message, say, &result, &got, &err), 0);
    CHECK_INT(got.disposal, IDEM_CONSUME_RETRY_LATER);
    CHECK(got.retry_ms > 0);
    CHECK(got.code < 0 && got.reason[0] != '\0');
    CHECK_STR(got.trace, "-"); /* the message id is the key */
    CHECK_INT(runs, 0);
    idem_close(gone);
}

TEST(a_callers_mistakes_are_errors_and_no_dead_letters) {
    struct idem_guard *guard = guard_of((struct idem_policy){.key_kind = IDEM_KEY_TOKEN});
    struct idem_guard *good = guard_of((struct idem_policy){0});
    static const struct idem_field broken[] = {{"name", NULL}}, twice[] = {{"message_id", "m-2"}};
    struct idem_message message = {.id = "m-1"};
    struct idem_consumed got = {.status = 4711};
    struct idem_error err;

    CHECK_INT(idem_consume(h, guard, &message, say, NULL, &got, &err), IDEM_E_INVALID);
    CHECK_INT(idem_consume(h, good, NULL, say, NULL, &got, &err), IDEM_E_INVALID);
    CHECK_INT(idem_consume(NULL, good, &message, say, NULL, &got, &err), IDEM_E_INVALID);
    CHECK_INT(idem_consume(h, good, &message, NULL, NULL, &got, &err), IDEM_E_INVALID);
    message.headers = broken;
    message.headers_n = 1;
    CHECK_INT(idem_consume(h, good, &message, say, NULL, &got, &err), IDEM_E_INVALID);
    message.headers = NULL;
    CHECK_INT(idem_consume(h, good, &message, say, NULL, &got, &err), IDEM_E_INVALID);
    message = (struct idem_message){.id = "m-1", .properties = twice, .properties_n = 1};
    CHECK_INT(idem_consume(h, good, &message, say, NULL, &got, &err), IDEM_E_INVALID);
    CHECK_INT(got.status, 4711);
    CHECK_INT(runs, 0);
}

TEST(expressions_read_headers_and_properties) {
    static const struct idem_field headers[] = {{"tenant", "acme"}};
    static const struct idem_field properties[] = {{"type", "paid"}};
    struct idem_guard *guard = guard_of((struct idem_policy){
        .key_expr = "#headers.tenant + ':' + #properties.type + ':' + #properties.message_id + ':' "
                    "+ #queue"});
    struct idem_message message = {.id = "m-1",
                                   .queue = "orders",
                                   .headers = headers,
                                   .headers_n = 1,
                                   .properties = properties,
                                   .properties_n = 1};
    struct idem_name name = {.prefix = "q:", .key = "acme:paid:m-1:orders", .key_len = 20};
    enum idem_result result = IDEM_RESULT_DONE;
    struct idem_consumed got;
    struct idem_entry entry;
    struct idem_error err;

    CHECK_INT(idem_consume(h, guard, &message, say, &result, &got, &err), 0);
    CHECK_INT(got.disposal, IDEM_CONSUME_ACK);
    CHECK_INT(idem_lookup(h, &name, &entry, &err), 0);
    CHECK_STR(entry.hash, got.key_hash);
    idem_entry_release(&entry);
}

TEST_MAIN
