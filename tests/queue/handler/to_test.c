/*
 * Messages to an HTTP endpoint, which acts on each message, and to endpoints
 * that do not exist.
 */
#include <dlfcn.h>
#include <netdb.h>
#include <sys/resource.h>
#include <time.h>

#include "endpoint.h"

/* A name whose lookup never ends; libcurl finds this function before libc's. */
int getaddrinfo(const char *name, const char *service, const struct addrinfo *hints,
                struct addrinfo **ret) {
    static int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);

    if (real == NULL)
        real = (__typeof__(real))dlsym(RTLD_NEXT, "getaddrinfo");
    if (name != NULL && strcmp(name, "slow.invalid") == 0)
        sleep(600); /* sleep: for longer than the test may take */
    return real(name, service, hints, ret);
}

TEST(a_status_says_what_came_of_it) {
    static const struct {
        int status;
        enum queue_result result;
    } rows[] = {
        {200, QUEUE_DONE},    {201, QUEUE_DONE},    {204, QUEUE_DONE},    {301, QUEUE_REFUSED},
        {307, QUEUE_REFUSED}, {400, QUEUE_REFUSED}, {404, QUEUE_REFUSED}, {409, QUEUE_RETRY},
        {425, QUEUE_RETRY},   {429, QUEUE_RETRY},   {500, QUEUE_RETRY},   {502, QUEUE_UNKNOWN},
        {503, QUEUE_RETRY},   {504, QUEUE_UNKNOWN},
    };
    struct endpoint e = endpoint_start(false);
    struct handler_rig rig;
    char what[160], reason[64];

    open_at(&rig, e.port);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct item *item;

        /* If libcurl followed a redirect, there would be one more request, and the result would be
         * done. */
        snprintf(what, sizeof(what),
                 "{\"status\": %d, \"headers\": {\"Location\": \"/elsewhere\"}}", rows[i].status);
        item = run_do(&rig, what);
        CHECK_SAID(item, rows[i].result);
        CHECK_INT(item->outcome.status, rows[i].status);
        CHECK_INT(item->outcome.delay_ms, 0);
        snprintf(reason, sizeof(reason), "HTTP %d", rows[i].status);
        CHECK_STR(item->reason, rows[i].result == QUEUE_DONE ? "" : reason);
        free(item);
        CHECK_INT(requests_n(), i + 1);
    }
    handler_rig_close(&rig);
    endpoint_stop(&e);
}

TEST(rules_for_statuses_are_kept) {
    struct endpoint e = endpoint_start(false);
    struct handler_to_config config = config_of("http", e.port);
    struct handler_rules rules;
    struct item *item;
    struct handler_rig rig;

    CHECK_INT(handler_on_status_parse("404=retry,5xx=dead", &rules, NULL), 0);
    config.on_status = &rules;
    open_with(&rig, &config);
    item = run_do(&rig, "{\"status\": 404, \"headers\": {\"Retry-After\": \"7\"}}");
    CHECK_SAID(item, QUEUE_RETRY);
    CHECK_INT(item->outcome.delay_ms, 7000);
    free(item);
    item = run_do(&rig, "{\"status\": 500}");
    CHECK_SAID(item, QUEUE_REFUSED);
    free(item);
    handler_rig_close(&rig);
    endpoint_stop(&e);
}

TEST(an_endpoint_may_say_itself_what_came_of_it) {
    static const struct {
        const char *what;
        enum queue_result result;
    } rows[] = {
        {"{\"status\": 500, \"headers\": {\"Idem-Outcome\": \"done\"}}", QUEUE_DONE},
        {"{\"status\": 200, \"headers\": {\"Idem-Outcome\": \"release\"}}", QUEUE_RETRY},
        {"{\"status\": 200, \"headers\": {\"idem-outcome\": \"keep\"}}", QUEUE_REFUSED},
        {"{\"status\": 200, \"headers\": {\"Idem-Outcome\": \"unknown\"}}", QUEUE_UNKNOWN},
        {"{\"status\": 200, \"headers\": {\"Idem-Outcome\": \"perhaps\"}}", QUEUE_DONE},
    };
    struct endpoint e = endpoint_start(false);
    struct handler_rig rig;

    open_at(&rig, e.port);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct item *item = run_do(&rig, rows[i].what);

        CHECK_SAID(item, rows[i].result);
        free(item);
    }
    handler_rig_close(&rig);
    endpoint_stop(&e);
}

/* A date this many seconds from now, in each of the three forms. */
static const char *date_text(int form, int seconds) {
    static char text[64];
    char day[32], clock[16];
    time_t at = time(NULL) + seconds;
    struct tm *tm = gmtime(&at);

    CHECK(strftime(clock, sizeof(clock), "%T", tm) > 0);
    if (form == 0) {
        CHECK(strftime(text, sizeof(text), "%a, %d %b %Y %T GMT", tm) > 0);
    } else if (form == 1) {
        CHECK(strftime(day, sizeof(day), "%A, %d-%b", tm) > 0);
        snprintf(text, sizeof(text), "%s-%02d %s GMT", day, tm->tm_year % 100, clock);
    } else {
        CHECK(strftime(text, sizeof(text), "%a %b %e %T %Y", tm) > 0);
    }
    return text;
}

/* The delay that follows from a Retry-After, and from a Date if there is one. */
static int64_t delay_by(struct handler_rig *rig, const char *after, const char *date) {
    struct item *item;
    char what[256];
    int64_t ms;

    snprintf(what, sizeof(what), "{\"status\": 503, \"headers\": {\"Retry-After\": \"%s\"%s%s%s}}",
             after, date == NULL ? "" : ", \"Date\": \"", date == NULL ? "" : date,
             date == NULL ? "" : "\"");
    item = run_do(rig, what);
    CHECK_SAID(item, QUEUE_RETRY);
    ms = item->outcome.delay_ms;
    free(item);
    return ms;
}

static bool is_about(int64_t ms, int64_t want) {
    if (ms > want || ms < want - 20000)
        fprintf(stderr, "# a delay of %lld ms, not %lld\n", (long long)ms, (long long)want);
    return ms <= want && ms >= want - 20000;
}

TEST(retry_after_is_read_in_each_form) {
    struct endpoint e = endpoint_start(false);
    struct handler_rig rig;

    open_at(&rig, e.port);
    CHECK_INT(delay_by(&rig, "120", NULL), 120000);
    CHECK_INT(delay_by(&rig, "0", NULL), 0);
    CHECK_INT(delay_by(&rig, "999999999999", NULL), 86400000);
    CHECK_INT(delay_by(&rig, "soon", NULL), 0);
    for (int form = 0; form < 3; form++)
        CHECK(is_about(delay_by(&rig, date_text(form, 60), NULL), 60000));
    CHECK_INT(delay_by(&rig, date_text(0, -60), NULL), 0);
    CHECK_INT(delay_by(&rig, date_text(0, 7 * 86400), NULL), 86400000);
    /* The endpoint has a clock of its own. */
    CHECK_INT(delay_by(&rig, "Sun, 06 Nov 1994 08:50:37 GMT", "Sun, 06 Nov 1994 08:49:37 GMT"),
              60000);
    handler_rig_close(&rig);
    endpoint_stop(&e);
}

TEST(what_an_endpoint_says_to_people_is_the_reason) {
    static const struct {
        const char *what, *reason;
    } rows[] = {
        {"{\"status\": 422, \"headers\": {\"Content-Type\": \"application/problem+json\"}, "
         "\"body\": \"{\\\"title\\\": \\\"T\\\", \\\"detail\\\": \\\"no\\\\nstock\\\"}\"}",
         "HTTP 422: no stock"},
        {"{\"status\": 422, \"headers\": {\"Content-Type\": \"application/json\"}, \"body\": "
         "\"{\\\"title\\\": \\\"T\\\", \\\"detail\\\": 1}\"}",
         "HTTP 422: T"},
        {"{\"status\": 422, \"headers\": {\"Content-Type\": \"application/json\"}, \"body\": "
         "\"[1]\"}",
         "HTTP 422"},
        {"{\"status\": 400, \"headers\": {\"Content-Type\": \"text/plain; charset=utf-8\"}, "
         "\"body\": \"out of stock\\nand more\"}",
         "HTTP 400: out of stock"},
        {"{\"status\": 400, \"headers\": {\"Content-Type\": \"text/html\"}, \"body\": \"<p>\"}",
         "HTTP 400"},
    };
    struct endpoint e = endpoint_start(false);
    struct handler_rig rig;

    open_at(&rig, e.port);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct item *item = run_do(&rig, rows[i].what);

        CHECK_STR(item->reason, rows[i].reason);
        free(item);
    }
    handler_rig_close(&rig);
    endpoint_stop(&e);
}

TEST(an_answer_that_does_not_come_whole_is_unknown) {
    static const char *const acts[] = {"close",   "reset",       "cut-head", "cut-body",
                                       "garbage", "chunked-cut", "long-head"};
    struct endpoint e = endpoint_start(false);
    struct handler_rig rig;
    char what[64];

    open_at(&rig, e.port);
    for (size_t i = 0; i < sizeof(acts) / sizeof(acts[0]); i++) {
        struct item *item;

        snprintf(what, sizeof(what), "{\"act\": \"%s\"}", acts[i]);
        item = run_do(&rig, what);
        CHECK_SAID(item, QUEUE_UNKNOWN);
        CHECK_HAS(item->reason, "it was sent, and the response did not come whole: ");
        if (strcmp(acts[i], "long-head") == 0)
            CHECK_HAS(item->reason, "its header is longer than 64 KiB");
        free(item);
        CHECK_INT(requests_n(), i + 1);
    }
    handler_rig_close(&rig);
    endpoint_stop(&e);
}

/* On a kept connection that ends without a byte, libcurl would retry by itself. */
TEST(a_request_is_never_sent_twice) {
    static const char *const acts[] = {"close", "reset"};
    struct endpoint e = endpoint_start(false);
    struct item *item;
    struct handler_rig rig;
    char what[64];
    int n = 0;

    open_at(&rig, e.port);
    for (int i = 0; i < 4; i++) {
        item = run_do(&rig, NULL);
        CHECK_SAID(item, QUEUE_DONE);
        free(item);
        snprintf(what, sizeof(what), "{\"act\": \"%s\"}", acts[i % 2]);
        item = item_do(what);
        if (i >= 2)
            item->message.body.len = 0;
        handler_rig_run(&rig, item);
        CHECK_SAID(item, QUEUE_UNKNOWN);
        CHECK_HAS(item->reason, i % 2 == 0 ? "closed without a response" : "response");
        free(item);
        CHECK_INT(requests_n(), n += 2);
    }
    handler_rig_close(&rig);
    endpoint_stop(&e);
}

TEST(an_endpoint_that_is_too_slow_is_unknown) {
    struct endpoint e = endpoint_start(false);
    struct handler_to_config config = config_of("http", e.port);
    int64_t since = idem_loop_now();
    struct item *item;
    struct handler_rig rig;

    config.timeout_ms = 1000;
    open_with(&rig, &config);
    item = run_do(&rig, "{\"act\": \"silent\"}");
    CHECK_SAID(item, QUEUE_UNKNOWN);
    CHECK(idem_loop_now() - since >= 1000);
    free(item);
    item = run_do(&rig, NULL);
    while (item->outcome.result != QUEUE_DONE) { /* a busy machine may take that long */
        free(item);
        item = run_do(&rig, NULL);
    }
    free(item);
    handler_rig_close(&rig);
    endpoint_stop(&e);
}

TEST(where_nothing_was_sent_nothing_was_begun) {
    struct endpoint e = endpoint_start(false);
    struct handler_to_config config;
    struct item *item;
    struct handler_rig rig;
    int port, fd = bound(&port);

    /* No process listens there. */
    open_at(&rig, port);
    item = run_do(&rig, NULL);
    CHECK_SAID(item, QUEUE_UNBEGUN);
    CHECK_HAS(item->reason, "it was not sent: ");
    CHECK_INT(item->outcome.status, 0);
    free(item);
    handler_rig_close(&rig);
    close(fd);
    /* A process listens there, but without TLS. */
    config = config_of("https", e.port);
    open_with(&rig, &config);
    item = run_do(&rig, NULL);
    CHECK_SAID(item, QUEUE_UNBEGUN);
    free(item);
    handler_rig_close(&rig);
    /* The name does not exist. */
    config.url = "http://there-is-no-such-name.invalid/";
    config.timeout_ms = 2000;
    open_with(&rig, &config);
    item = run_do(&rig, NULL);
    CHECK_SAID(item, QUEUE_UNBEGUN);
    free(item);
    handler_rig_close(&rig);
    CHECK_INT(requests_n(), 0);
    endpoint_stop(&e);
}

TEST(nobody_waits_for_a_name_that_is_looked_up_for_ever) {
    struct handler_to_config config = config_of("http", 9);
    struct item *item = item_do(NULL), *other = item_do(NULL), *third = item_do(NULL);
    struct handler_rig rig;

    config.url = "http://slow.invalid/";
    open_with(&rig, &config);
    handler_rig_begin(&rig, other);
    /* sleep: until both are on their way; any moment will do */
    handler_rig_spin(&rig, 50);
    handler_rig_cancel(&rig, other);
    handler_rig_wait(&rig, other);
    CHECK_SAID(other, QUEUE_UNBEGUN);
    handler_rig_begin(&rig, third);
    /* sleep: until it is on its way; any moment will do */
    handler_rig_spin(&rig, 50);
    handler_rig_close(&rig);
    CHECK_INT(third->reports, 0);
    config.timeout_ms = 300;
    open_with(&rig, &config);
    handler_rig_run(&rig, item);
    CHECK_SAID(item, QUEUE_UNBEGUN);
    handler_rig_close(&rig);
    free(item);
    free(other);
    free(third);
}

TEST(a_server_that_never_greets_was_not_sent_anything) {
    int port, fd = listener(&port);
    struct handler_to_config config = config_of("https", port);
    struct item *item = item_do(NULL);
    struct handler_rig rig;

    open_with(&rig, &config);
    handler_rig_begin(&rig, item);
    /* sleep: until it is on its way; any moment will do */
    handler_rig_spin(&rig, 100);
    handler_rig_cancel(&rig, item);
    handler_rig_cancel(&rig, item);
    handler_rig_wait(&rig, item);
    CHECK_SAID(item, QUEUE_UNBEGUN);
    CHECK_STR(item->reason, "it was not sent: it was cancelled");
    free(item);
    handler_rig_close(&rig);
    config.timeout_ms = 1000;
    open_with(&rig, &config);
    item = run_do(&rig, NULL);
    CHECK_SAID(item, QUEUE_UNBEGUN);
    CHECK_HAS(item->reason, "it was not sent: ");
    free(item);
    handler_rig_close(&rig);
    close(fd);
}

TEST(after_the_end_of_the_lease_nothing_is_sent) {
    struct endpoint e = endpoint_start(false);
    struct item *item = item_do(NULL);
    struct handler_rig rig;

    open_at(&rig, e.port);
    item->run.not_after = idem_loop_now();
    handler_rig_run(&rig, item);
    CHECK_SAID(item, QUEUE_UNBEGUN);
    CHECK_STR(item->reason, "it was not sent: the lease was over before the endpoint was reached");
    CHECK_INT(requests_n(), 0);
    free(item);
    handler_rig_close(&rig);
    endpoint_stop(&e);
}

TEST(what_is_cancelled_after_it_was_sent_is_unknown) {
    struct endpoint e = endpoint_start(false);
    struct item *item = item_do("{\"act\": \"silent\"}");
    struct handler_rig rig;

    open_at(&rig, e.port);
    handler_rig_begin(&rig, item);
    HANDLER_RIG_UNTIL(&rig, requests_n() == 1);
    handler_rig_cancel(&rig, item);
    handler_rig_cancel(&rig, item);
    handler_rig_wait(&rig, item);
    CHECK_SAID(item, QUEUE_UNKNOWN);
    CHECK_HAS(item->reason, "it was cancelled");
    free(item);
    item = run_do(&rig, NULL);
    CHECK_SAID(item, QUEUE_DONE);
    free(item);
    handler_rig_close(&rig);
    endpoint_stop(&e);
}

TEST(many_go_out_at_once) {
    struct endpoint e = endpoint_start(false);
    struct item *items[32];
    struct handler_rig rig;

    open_at(&rig, e.port);
    for (int i = 0; i < 32; i++) {
        items[i] = item_do("{\"act\": \"together\", \"n\": 32}");
        handler_rig_begin(&rig, items[i]);
    }
    handler_rig_wait_all(&rig, 32);
    for (int i = 0; i < 32; i++) {
        CHECK_SAID(items[i], QUEUE_DONE);
        free(items[i]);
    }
    handler_rig_close(&rig);
    endpoint_stop(&e);
}

TEST(an_answer_of_a_gigabyte_is_read_and_dropped) {
    struct endpoint e = endpoint_start(false);
    struct rusage before, after;
    struct item *item;
    struct handler_rig rig;

    open_at(&rig, e.port);
    free(run_do(&rig, NULL));
    CHECK_INT(getrusage(RUSAGE_SELF, &before), 0);
    item = item_do("{\"act\": \"huge\", \"length\": 1073741824}");
    handler_rig_begin(&rig, item);
    handler_rig_wait(&rig, item);
    CHECK_SAID(item, QUEUE_DONE);
    CHECK_INT(getrusage(RUSAGE_SELF, &after), 0);
    CHECK(after.ru_maxrss - before.ru_maxrss < 32 << 10);
    free(item);
    handler_rig_close(&rig);
    endpoint_stop(&e);
}

TEST(hints_before_the_answer_are_not_the_answer) {
    struct endpoint e = endpoint_start(false);
    struct item *item;
    struct handler_rig rig;

    open_at(&rig, e.port);
    item = run_do(&rig, "{\"act\": \"hints\", \"status\": 503}");
    CHECK_SAID(item, QUEUE_RETRY);
    CHECK_INT(item->outcome.delay_ms, 0);
    free(item);
    handler_rig_close(&rig);
    endpoint_stop(&e);
}

TEST(an_endpoint_that_goes_and_comes_back_is_found_again) {
    struct endpoint e = endpoint_start(false);
    struct handler_rig rig;
    struct item *item;

    open_at(&rig, e.port);
    free(run_do(&rig, NULL));
    endpoint_stop(&e);
    item = run_do(&rig, NULL);
    CHECK_SAID(item, QUEUE_UNBEGUN);
    free(item);
    handler_rig_close(&rig);
}

TEST(closing_gives_up_what_is_on_its_way) {
    struct endpoint e = endpoint_start(false);
    struct item *item = item_do("{\"act\": \"silent\"}");
    struct handler_rig rig;

    open_at(&rig, e.port);
    handler_rig_begin(&rig, item);
    HANDLER_RIG_UNTIL(&rig, requests_n() == 1);
    handler_rig_close(&rig);
    CHECK_INT(item->reports, 0);
    free(item);
    endpoint_stop(&e);
}

TEST(what_cannot_be_opened_is_refused) {
    static const struct {
        const char *url, *why;
    } rows[] = {
        {"ftp://user:secret@127.0.0.1/", "--to: the URL begins with http:// or https://"},
        {"file:///etc/passwd", "--to: the URL begins with http:// or https://"},
        {"127.0.0.1:9000/handle", "--to: "},
        {"http://user:secret@:x/", "--to: this is no URL"},
        {"", "--to: this is no URL"},
    };
    struct handler_to_config config = config_of("http", 9);
    struct handler handler;
    struct idem_error err;
    struct handler_rig rig;

    handler_rig_init(&rig);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        config.url = rows[i].url;
        CHECK_INT(handler_to_open(&config, &rig.loop, &handler, &err), IDEM_E_INVALID);
        CHECK_HAS(err.text, rows[i].why);
        CHECK(strstr(err.text, "secret") == NULL);
    }
    config = config_of("http", 9);
    config.timeout_ms = 0;
    CHECK_INT(handler_to_open(&config, &rig.loop, &handler, &err), IDEM_E_INVALID);
    CHECK_HAS(err.text, "--to-timeout");
    handler_rig_close(&rig);
}

int main(int argc, char **argv) {
    test_at_a_time = 4; /* the tests wait more than they work */
    return test_main(argc, argv);
}
