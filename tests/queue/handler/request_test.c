/*
 * Requests to an HTTP endpoint: their content, and the connections that carry
 * them.
 */
#include "endpoint.h"
#include "http/http_field.h"
#include "protocol/record_key.h"

TEST(an_endpoint_gets_the_message_and_says_what_came_of_it) {
    struct endpoint e = endpoint_start(false);
    char downstream[IDEM_HEX_LEN + 1];
    struct item *item;
    struct handler_rig rig;
    struct log log;

    open_at(&rig, e.port);
    item = item_do(NULL);
    item_header(item, "traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
    item_header(item, "X-Empty", "");
    item_property(item, "content_type", "application/json");
    item_property(item, "content_encoding", "identity");
    handler_rig_run(&rig, item);
    CHECK_SAID(item, QUEUE_DONE);
    CHECK_INT(item->outcome.status, 200);
    CHECK(item->outcome.reason == NULL);
    log_read(&log);
    CHECK_INT(log.n, 1);
    CHECK(strncmp(idem_json_get(log.requests, "line", 4)->at.text, "POST /handle?x=1 HTTP/1.1",
                  25) == 0);
    CHECK_STR(field(log.requests, "Idempotency-Key"), "\"4711\"");
    CHECK_STR(field(log.requests, "Idem-Attempt"), "3");
    CHECK_INT(idem_downstream_key("order:", HANDLER_RIG_HASH, downstream), 0);
    CHECK_STR(field(log.requests, "Idem-Downstream-Key"), downstream);
    CHECK_STR(field(log.requests, "Content-Type"), "application/json");
    CHECK_STR(field(log.requests, "Content-Encoding"), "identity");
    CHECK_STR(field(log.requests, "Content-Length"), "6");
    CHECK_STR(field(log.requests, "traceparent"),
              "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
    CHECK_STR(field(log.requests, "X-Empty"), "");
    CHECK_STR(field(log.requests, "User-Agent"), "idem/" IDEM_VERSION);
    CHECK(field(log.requests, "Expect") == NULL);
    CHECK(field(log.requests, "Idem-Omitted") == NULL);
    log_free(&log);
    free(item);
    handler_rig_close(&rig);
    endpoint_stop(&e);
}

TEST(connections_are_kept) {
    struct endpoint e = endpoint_start(false);
    int64_t since[21]; /* when the request before it was over */
    struct handler_rig rig;
    struct log log;

    open_at(&rig, e.port);
    for (int i = 0; i < 20; i++) {
        struct item *item;

        since[i] = idem_loop_now();
        item = run_do(&rig, NULL);
        CHECK_SAID(item, QUEUE_DONE);
        free(item);
    }
    since[20] = idem_loop_now();
    log_read(&log);
    CHECK_INT(log.n, 20);
    for (int i = 1; i < 20; i++) /* after a second of idleness another connection is right */
        CHECK(memcmp(idem_json_get(&log.requests[i], "conn", 4)->at.text,
                     idem_json_get(&log.requests[i - 1], "conn", 4)->at.text, 1) == 0 ||
              since[i + 1] - since[i] >= 1000);
    log_free(&log);
    handler_rig_close(&rig);
    endpoint_stop(&e);
}

/* The other end may be closing it. */
TEST(a_connection_that_was_idle_is_not_used_again) {
    struct endpoint e = endpoint_start(false);
    struct handler_rig rig;
    struct log log;

    open_at(&rig, e.port);
    free(run_do(&rig, NULL));
    /* sleep: longer than the other side keeps a connection */
    handler_rig_spin(&rig, 2100);
    free(run_do(&rig, NULL));
    log_read(&log);
    CHECK_INT(log.n, 2);
    CHECK(idem_json_get(&log.requests[1], "conn", 4)->at.text[0] == '2');
    log_free(&log);
    handler_rig_close(&rig);
    endpoint_stop(&e);
}

TEST(bodies_are_sent_as_they_are) {
    static const char sha_of_none[] =
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    static unsigned char body[3 << 20];
    struct endpoint e = endpoint_start(false);
    unsigned char hash[IDEM_HASH_LEN];
    char hex[IDEM_HEX_LEN + 1];
    struct item *item;
    struct handler_rig rig;
    struct log log;

    for (size_t i = 0; i < sizeof(body); i++)
        body[i] = (unsigned char)(i * 7 + i / 256);
    CHECK_INT(idem_sha256((struct idem_bytes){body, sizeof(body)}, hash), 0);
    for (int i = 0; i < IDEM_HASH_LEN; i++)
        snprintf(hex + 2 * (size_t)i, 3, "%02x", hash[i]);
    open_at(&rig, e.port);
    item = item_of(body, sizeof(body));
    handler_rig_run(&rig, item);
    CHECK_SAID(item, QUEUE_DONE);
    free(item);
    item = item_of(NULL, 0);
    handler_rig_run(&rig, item);
    CHECK_SAID(item, QUEUE_DONE);
    free(item);
    log_read(&log);
    CHECK_INT(log.n, 2);
    CHECK(strncmp(idem_json_get(&log.requests[0], "sha256", 6)->at.text, hex, 64) == 0);
    CHECK(field(&log.requests[0], "Expect") == NULL);
    CHECK(field(&log.requests[0], "Content-Type") == NULL);
    CHECK(field(&log.requests[0], "Transfer-Encoding") == NULL);
    CHECK(strncmp(idem_json_get(&log.requests[1], "sha256", 6)->at.text, sha_of_none, 64) == 0);
    CHECK_STR(field(&log.requests[1], "Content-Length"), "0");
    log_free(&log);
    handler_rig_close(&rig);
    endpoint_stop(&e);
}

TEST(no_header_of_a_message_passes_for_another_s) {
    static const char *const dropped[] = {
        "Host",       "Content-Length",  "Transfer-Encoding", "Connection",     "Keep-Alive",
        "TE",         "Trailer",         "Upgrade",           "Expect",         "Cookie",
        "Set-Cookie", "Authorization",   "Proxy-Connection",  "Idem-Attempt",   "IDEM-X",
        "idem-scope", "Idempotency-Key", "Idempotent-Token",  "HTTP2-Settings", "Accept-Encoding",
    };
    struct endpoint e = endpoint_start(false);
    struct item *item = item_do(NULL);
    struct handler_rig rig;
    struct log log;
    char port[64];

    for (size_t i = 0; i < sizeof(dropped) / sizeof(dropped[0]); i++)
        item_header(item, dropped[i], "forged");
    item_header(item, "X-Inject", "a\r\nX-Evil: 1");
    item_header(item, "X-Inject-2", "a\nX-Evil: 1");
    item_header(item, "X-Inject-3\r\nX-Evil", "1");
    item_header(item, "X-Inject-4: x\r\nX-Evil", "1");
    item_header(item, "X Space", "1");
    item_header(item, "", "1");
    item_header(item, "X-Good", " with blanks\t");
    item_header(item, "X-Latin", "caf\xe9");
    item->headers[item->message.headers_n++] = (struct queue_field){
        .name = bytes_of("X-Nul"), .value = {(const unsigned char *)"a\0X-Evil: 1", 11}};
    item->headers[item->message.headers_n++] =
        (struct queue_field){.name = bytes_of("X-Json"), .value = bytes_of("{}"), .json = true};
    item_property(item, "content_type", "text/plain\r\nX-Evil: 1");
    item_property(item, "content_encoding", "gzip\nX-Evil: 1");
    open_at(&rig, e.port);
    handler_rig_run(&rig, item);
    CHECK_SAID(item, QUEUE_DONE);
    log_read(&log);
    CHECK_INT(log.n, 1);
    CHECK(strstr(log.text, "forged") == NULL);
    CHECK(strstr(log.text, "Evil") == NULL);
    CHECK(strstr(log.text, "Inject") == NULL);
    CHECK(strstr(log.text, "Space") == NULL);
    CHECK(strstr(log.text, "X-Nul") == NULL);
    CHECK(strstr(log.text, "X-Json") == NULL);
    CHECK_STR(field(log.requests, "X-Good"), "with blanks");
    CHECK_STR(field(log.requests, "X-Latin"), "caf\xc3\xa9"); /* as the log shows it */
    CHECK(field(log.requests, "Content-Type") == NULL);
    CHECK(field(log.requests, "Content-Encoding") == NULL);
    snprintf(port, sizeof(port), "127.0.0.1:%d", e.port);
    CHECK_STR(field(log.requests, "Host"), port);
    log_free(&log);
    free(item);
    handler_rig_close(&rig);
    endpoint_stop(&e);
}

TEST(headers_are_passed_on_as_long_as_there_is_room) {
    static char names[100][16], value[3001];
    struct endpoint e = endpoint_start(false);
    struct item *item = item_do(NULL), *large = item_do(NULL);
    struct handler_rig rig;
    struct log log;

    for (int i = 0; i < 100; i++) {
        snprintf(names[i], sizeof(names[i]), "X-%d", i);
        item_header(item, names[i], "1");
    }
    memset(value, 'v', 3000);
    for (int i = 0; i < 4; i++)
        item_header(large, names[i], value);
    item_header(large, "X-Small", "1");
    open_at(&rig, e.port);
    handler_rig_run(&rig, item);
    handler_rig_run(&rig, large);
    CHECK_SAID(item, QUEUE_DONE);
    CHECK_SAID(large, QUEUE_DONE);
    log_read(&log);
    CHECK_STR(field(&log.requests[0], "X-63"), "1");
    CHECK(field(&log.requests[0], "X-64") == NULL);
    CHECK_STR(field(&log.requests[0], "Idem-Omitted"), "36");
    CHECK_STR(field(&log.requests[1], "X-Small"), "1");
    CHECK_STR(field(&log.requests[1], "Idem-Omitted"), "2");
    log_free(&log);
    free(item);
    free(large);
    handler_rig_close(&rig);
    endpoint_stop(&e);
}

/* How a key is sent, and that a server reads the same key. */
static void key_sent(struct handler_rig *rig, const char *key, size_t len, const char *want) {
    struct item *item = item_do(NULL);
    struct log log;
    char again[IDEM_HTTP_KEY_MAX];
    size_t again_len;
    const char *sent;

    item->run.key = key;
    item->run.key_len = len;
    (void)unlink(path_of("requests"));
    handler_rig_run(rig, item);
    CHECK_SAID(item, QUEUE_DONE);
    log_read(&log);
    sent = field(log.requests, "Idempotency-Key");
    CHECK_STR(sent, want);
    CHECK(idem_http_key_read((struct idem_http_text){sent, strlen(sent)}, again, &again_len) ==
          NULL);
    if (strcmp(want, "\"" HANDLER_RIG_HASH "\"") != 0)
        CHECK(again_len == len && memcmp(again, key, len) == 0);
    log_free(&log);
    free(item);
}

TEST(a_key_is_a_string_of_structured_fields_or_its_hash) {
    static const char hash[] = "\"" HANDLER_RIG_HASH "\"";
    struct endpoint e = endpoint_start(false);
    char key[300], want[300];
    struct handler_rig rig;

    open_at(&rig, e.port);
    key_sent(&rig, "a-1", 3, "\"a-1\"");
    key_sent(&rig, "order 7", 7, "\"order 7\"");
    key_sent(&rig, "say \"\\\"", 7, "\"say \\\"\\\\\\\"\"");
    memset(key, 'k', sizeof(key));
    snprintf(want, sizeof(want), "\"%.255s\"", key);
    key_sent(&rig, key, 255, want);
    key_sent(&rig, key, 256, hash);
    key_sent(&rig, "a\r\nX-Evil: 1", 12, hash);
    key_sent(&rig, "a\0b", 3, hash);
    key_sent(&rig, "caf\xc3\xa9", 5, hash);
    key_sent(&rig, "\xff\xfe", 2, hash);
    handler_rig_close(&rig);
    endpoint_stop(&e);
}

TEST(a_type_may_be_a_header_where_the_broker_knows_none) {
    struct endpoint e = endpoint_start(false);
    struct item *item = item_do(NULL);
    struct handler_rig rig;
    struct log log;

    item_header(item, "content-type", "text/csv");
    open_at(&rig, e.port);
    handler_rig_run(&rig, item);
    log_read(&log);
    CHECK_STR(field(log.requests, "Content-Type"), "text/csv");
    log_free(&log);
    free(item);
    handler_rig_close(&rig);
    endpoint_stop(&e);
}

TEST(the_environment_names_no_proxy) {
    struct endpoint e = endpoint_start(false);
    struct item *item;
    struct handler_rig rig;
    int port, fd = listener(&port);
    char proxy[64];

    close(fd);
    snprintf(proxy, sizeof(proxy), "http://127.0.0.1:%d", port);
    setenv("http_proxy", proxy, 1);
    setenv("all_proxy", proxy, 1);
    setenv("ALL_PROXY", proxy, 1);
    open_at(&rig, e.port);
    item = run_do(&rig, NULL);
    CHECK_SAID(item, QUEUE_DONE);
    free(item);
    handler_rig_close(&rig);
    endpoint_stop(&e);
}

TEST(an_https_endpoint_must_be_vouched_for) {
    struct endpoint e = endpoint_start(true);
    struct handler_to_config config = config_of("https", e.port);
    struct item *item;
    struct handler_rig rig;

    open_with(&rig, &config);
    item = run_do(&rig, NULL);
    CHECK_SAID(item, QUEUE_UNBEGUN);
    CHECK_HAS(item->reason, "it was not sent: SSL certificate problem");
    free(item);
    handler_rig_close(&rig);
    CHECK_INT(requests_n(), 0);
    config.ca_file = path_of("ca.crt");
    open_with(&rig, &config);
    item = run_do(&rig, NULL);
    CHECK_SAID(item, QUEUE_DONE);
    free(item);
    item = run_do(&rig, "{\"act\": \"close\"}");
    CHECK_SAID(item, QUEUE_UNKNOWN);
    free(item);
    CHECK_INT(requests_n(), 2);
    handler_rig_close(&rig);
    endpoint_stop(&e);
}

int main(int argc, char **argv) {
    test_at_a_time = 4; /* the tests wait more than they work */
    return test_main(argc, argv);
}
