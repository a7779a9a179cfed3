/*
 * Deliveries and acknowledgements, on a real server: which messages come, how
 * many at a time, and which come again.
 */
#include "client.h"
#include "farm.h"
#include "temp.h"
#include "test.h"
#include "test_consumer.h"

static struct farm farm;
static struct client client;
static struct test_consumer consumer;

static void start(const char *queue, bool quorum) {
    client_open(&client, farm.server.port);
    client_declare(&client, queue, quorum, NULL);
}

static void publish_many(const char *queue, size_t n) {
    char body[32];

    for (size_t i = 0; i < n; i++) {
        snprintf(body, sizeof(body), "m%zu", i);
        client_send(&client, "", queue, NULL, body, strlen(body));
    }
    client_confirm(&client);
}

static amqp_table_entry_t entry(const char *name, char kind) {
    amqp_table_entry_t made = {.key = amqp_cstring_bytes(name)};

    made.value.kind = (uint8_t)kind;
    return made;
}

static amqp_table_entry_t entry_bytes(const char *name, char kind, const void *bytes, size_t len) {
    amqp_table_entry_t made = entry(name, kind);

    made.value.value.bytes = (amqp_bytes_t){.bytes = (void *)(uintptr_t)bytes, .len = len};
    return made;
}

static amqp_table_entry_t entry_text(const char *name, const char *text) {
    return entry_bytes(name, AMQP_FIELD_KIND_UTF8, text, strlen(text));
}

TEST(a_message_comes_with_its_properties_as_they_were_sent) {
    amqp_basic_properties_t p = {
        ._flags = AMQP_BASIC_CONTENT_TYPE_FLAG | AMQP_BASIC_CONTENT_ENCODING_FLAG |
                  AMQP_BASIC_DELIVERY_MODE_FLAG | AMQP_BASIC_PRIORITY_FLAG |
                  AMQP_BASIC_CORRELATION_ID_FLAG | AMQP_BASIC_REPLY_TO_FLAG |
                  AMQP_BASIC_MESSAGE_ID_FLAG | AMQP_BASIC_TIMESTAMP_FLAG | AMQP_BASIC_TYPE_FLAG |
                  AMQP_BASIC_USER_ID_FLAG | AMQP_BASIC_APP_ID_FLAG,
        .content_type = amqp_cstring_bytes("application/json"),
        .content_encoding = amqp_cstring_bytes("utf-8"),
        .delivery_mode = 1,
        .priority = 3,
        .correlation_id = amqp_cstring_bytes("corr"),
        .reply_to = amqp_cstring_bytes("back"),
        .message_id = amqp_cstring_bytes("id \xc3\xa4"),
        .timestamp = 1700000000,
        .type = amqp_cstring_bytes("order"),
        .user_id = amqp_cstring_bytes(SERVER_USER),
        .app_id = amqp_cstring_bytes("shop\xff"),
    };

    start("props", false);
    client_bind(&client, "shop", "props", "orders.new");
    client_send(&client, "shop", "orders.new", &p, "{\"id\": 7}", 9);
    client_confirm(&client);
    test_consumer_start(&consumer, farm_url(farm.server.port, ""), "props");
    test_consumer_wait(&consumer, 1);
    CHECK_STR(test_consumer_body(&consumer, 0), "{\"id\": 7}");
    CHECK_STR(consumer.got[0].message->queue, "props");
    CHECK(!consumer.got[0].message->redelivered);
    CHECK_STR(test_consumer_property(&consumer, 0, "content_type"), "application/json");
    CHECK_STR(test_consumer_property(&consumer, 0, "content_encoding"), "utf-8");
    CHECK_STR(test_consumer_property(&consumer, 0, "delivery_mode"), "=1");
    CHECK_STR(test_consumer_property(&consumer, 0, "priority"), "=3");
    CHECK_STR(test_consumer_property(&consumer, 0, "correlation_id"), "corr");
    CHECK_STR(test_consumer_property(&consumer, 0, "reply_to"), "back");
    CHECK_STR(test_consumer_property(&consumer, 0, "message_id"), "id \xc3\xa4");
    CHECK_STR(test_consumer_property(&consumer, 0, "timestamp"), "=1700000000");
    CHECK_STR(test_consumer_property(&consumer, 0, "type"), "order");
    CHECK_STR(test_consumer_property(&consumer, 0, "user_id"), SERVER_USER);
    CHECK_STR(test_consumer_property(&consumer, 0, "app_id"), "base64:c2hvcP8=");
    CHECK_STR(test_consumer_property(&consumer, 0, "exchange"), "shop");
    CHECK_STR(test_consumer_property(&consumer, 0, "routing_key"), "orders.new");
    CHECK_INT(consumer.got[0].message->headers_n, 0);
    CHECK_INT(consumer.got[0].message->properties_n, 13);
    test_consumer_ack(&consumer, 0);
    test_consumer_close(&consumer);
    client_close(&client);
}

TEST(headers_come_with_all_their_digits) {
    amqp_table_entry_t inner[2] = {entry_text("a\"b", "x\ny"), entry("n", AMQP_FIELD_KIND_I64)};
    amqp_field_value_t items[3];
    amqp_table_entry_t headers[13];
    amqp_basic_properties_t p = {._flags = AMQP_BASIC_HEADERS_FLAG};
    size_t n = 0;

    inner[1].value.value.i64 = INT64_MIN;
    items[0] = (amqp_field_value_t){.kind = AMQP_FIELD_KIND_BOOLEAN, .value = {.boolean = 1}};
    items[1] = (amqp_field_value_t){.kind = AMQP_FIELD_KIND_VOID};
    items[2] = entry_text("", "t").value;
    headers[n++] = entry_text("Idempotency-Key", "k-1");
    headers[n++] = entry_text("empty", "");
    headers[n] = entry("big", AMQP_FIELD_KIND_I64);
    headers[n++].value.value.i64 = 9007199254740993;
    headers[n] = entry("small", AMQP_FIELD_KIND_I8);
    headers[n++].value.value.i8 = -5;
    headers[n] = entry("yes", AMQP_FIELD_KIND_BOOLEAN);
    headers[n++].value.value.boolean = 1;
    headers[n] = entry("half", AMQP_FIELD_KIND_F64);
    headers[n++].value.value.f64 = 0.1;
    headers[n] = entry("money", AMQP_FIELD_KIND_DECIMAL);
    headers[n++].value.value.decimal = (amqp_decimal_t){.decimals = 3, .value = 50};
    headers[n] = entry("when", AMQP_FIELD_KIND_TIMESTAMP);
    headers[n++].value.value.u64 = 1700000001;
    headers[n++] = entry_bytes("bytes", AMQP_FIELD_KIND_BYTES, "\x00\xff\x01", 3);
    headers[n++] = entry_bytes("text", AMQP_FIELD_KIND_BYTES, "plain", 5);
    headers[n] = entry("table", AMQP_FIELD_KIND_TABLE);
    headers[n++].value.value.table = (amqp_table_t){.num_entries = 2, .entries = inner};
    headers[n] = entry("list", AMQP_FIELD_KIND_ARRAY);
    headers[n++].value.value.array = (amqp_array_t){.num_entries = 3, .entries = items};
    headers[n++] = entry("nothing", AMQP_FIELD_KIND_VOID);
    p.headers = (amqp_table_t){.num_entries = (int)n, .entries = headers};
    start("headers", true);
    client_send(&client, "", "headers", &p, "", 0);
    client_confirm(&client);
    test_consumer_start(&consumer, farm_url(farm.server.port, ""), "headers");
    test_consumer_wait(&consumer, 1);
    CHECK_INT(consumer.got[0].message->body.len, 0);
    CHECK_INT(consumer.got[0].message->headers_n, 13); /* x-delivery-count is not a header */
    CHECK_STR(test_consumer_header(&consumer, 0, "idempotency-key"), "k-1");
    CHECK_STR(test_consumer_header(&consumer, 0, "empty"), "");
    CHECK_STR(test_consumer_header(&consumer, 0, "big"), "=9007199254740993");
    CHECK_STR(test_consumer_header(&consumer, 0, "small"), "=-5");
    CHECK_STR(test_consumer_header(&consumer, 0, "yes"), "=true");
    CHECK_STR(test_consumer_header(&consumer, 0, "half"), "=0.1");
    CHECK_STR(test_consumer_header(&consumer, 0, "money"), "=0.050");
    CHECK_STR(test_consumer_header(&consumer, 0, "when"), "=1700000001");
    CHECK_STR(test_consumer_header(&consumer, 0, "bytes"), "base64:AP8B");
    CHECK_STR(test_consumer_header(&consumer, 0, "text"), "plain");
    CHECK_STR(test_consumer_header(&consumer, 0, "table"),
              "={\"a\\\"b\":\"x\\u000ay\",\"n\":-9223372036854775808}");
    CHECK_STR(test_consumer_header(&consumer, 0, "list"), "=[true,null,\"t\"]");
    CHECK_STR(test_consumer_header(&consumer, 0, "nothing"), "=null");
    CHECK_STR(test_consumer_property(&consumer, 0, "delivery_mode"), "(none)");
    test_consumer_close(&consumer);
    client_close(&client);
}

TEST(bodies_of_any_length_and_any_bytes_come_whole) {
    size_t lengths[] = {1, 131063, 131064, 131065, 1 << 20};
    unsigned char *body = malloc(1 << 20);

    for (size_t i = 0; i < 1 << 20; i++)
        body[i] = (unsigned char)(i * 7 ^ i >> 8);
    start("bodies", false);
    for (size_t i = 0; i < 5; i++)
        client_send(&client, "", "bodies", NULL, body, lengths[i]);
    client_confirm(&client);
    test_consumer_start(&consumer, farm_url(farm.server.port, ""), "bodies");
    test_consumer_wait(&consumer, 5);
    for (size_t i = 0; i < 5; i++) {
        CHECK_INT(consumer.got[i].message->body.len, lengths[i]);
        CHECK(memcmp(consumer.got[i].message->body.at, body, lengths[i]) == 0);
        test_consumer_ack(&consumer, i);
    }
    test_consumer_close(&consumer);
    client_wait_count(&client, "bodies", 0);
    client_close(&client);
    free(body);
}

TEST(no_more_are_out_than_the_prefetch) {
    start("prefetch", false);
    publish_many("prefetch", 100);
    test_consumer_start(&consumer, farm_url(farm.server.port, ""), "prefetch");
    test_consumer_wait(&consumer, 10);
    test_consumer_idle(&consumer, 200); /* sleep: no more messages come */
    CHECK_INT(consumer.got_n, 10);
    for (size_t i = 0; i < 100; i++) {
        test_consumer_wait(&consumer, i + 1);
        test_consumer_ack(&consumer, i);
    }
    CHECK_INT(consumer.out_most, 10);
    test_consumer_close(&consumer);
    client_wait_count(&client, "prefetch", 0);
    client_close(&client);
}

/* Four of these fill the limit of bytes in hand; all of them are more than a socket holds. */
enum { HEAVY = 60, HEAVY_LEN = 300000 };

static void start_heavy(const char *queue, bool quorum, const char *options) {
    struct queue_config config = test_consumer_config(farm_url(farm.server.port, options), queue);
    char *body = calloc(1, HEAVY_LEN);

    start(queue, quorum);
    for (int i = 0; i < HEAVY; i++)
        client_send(&client, "", queue, NULL, body, HEAVY_LEN);
    client_confirm(&client);
    free(body);
    rabbit_out_bytes = 1000000;
    config.prefetch = HEAVY;
    test_consumer_open(&consumer, &config);
    queue_broker_amqp.fetch(consumer.link, true);
    test_consumer_wait(&consumer, 4);
}

/* Longer than the server waits for a heartbeat, which is twice the interval; the interval is
 * longer than a pause of a busy machine. */
TEST(no_more_bytes_are_out_than_there_is_room_for) {
    start_heavy("bytes", false, "heartbeat=6s");
    test_consumer_idle(&consumer, 12500); /* sleep: two heartbeats */
    CHECK_INT(consumer.got_n, 4);
    for (size_t i = 0; i < HEAVY; i++) {
        test_consumer_wait(&consumer, i + 1);
        test_consumer_ack(&consumer, i);
    }
    CHECK_INT(consumer.out_most, 4);
    CHECK_INT(consumer.gone_n, 0);
    test_consumer_close(&consumer);
    client_wait_count(&client, "bytes", 0);
    client_close(&client);
}

/* From `*next` on, which is the first message that is still out. */
static bool all_given_back(size_t *next) {
    while (*next < consumer.got_n)
        test_consumer_giveback(&consumer, (*next)++);
    return true;
}

/* Messages that were on their way go back, too. */
TEST(a_stop_with_no_room_left_gives_all_back) {
    size_t back = 1;

    start_heavy("bytes-stop", true, "");
    queue_broker_amqp.fetch(consumer.link, false);
    test_consumer_ack(&consumer, 0);
    TEST_CONSUMER_UNTIL(&consumer,
                        all_given_back(&back) && client_count(&client, "bytes-stop") == HEAVY - 1);
    CHECK(consumer.out_most <= 4);
    test_consumer_close(&consumer);
    client_close(&client);
}

/* A message that is not acknowledged stands among acknowledged ones, and must not be
 * acknowledged with them. */
static void some_stay(const char *queue, bool quorum) {
    struct queue_config config = test_consumer_config(farm_url(farm.server.port, ""), queue);

    start(queue, quorum);
    publish_many(queue, 20);
    config.prefetch = 20;
    test_consumer_open(&consumer, &config);
    queue_broker_amqp.fetch(consumer.link, true);
    test_consumer_wait(&consumer, 20);
    for (size_t i = 20; i-- > 0;) /* and in another order */
        if (i != 3 && i != 17)
            test_consumer_ack(&consumer, i);
    test_consumer_close(&consumer);
    client_wait_count(&client, queue, 2);
    test_consumer_start(&consumer, config.url, queue);
    test_consumer_wait(&consumer, 2);
    CHECK_STR(test_consumer_body(&consumer, 0), "m3");
    CHECK_STR(test_consumer_body(&consumer, 1), "m17");
    CHECK(consumer.got[0].message->redelivered);
    test_consumer_ack(&consumer, 0);
    test_consumer_ack(&consumer, 1);
    test_consumer_close(&consumer);
    client_wait_count(&client, queue, 0);
    client_close(&client);
}

TEST(what_was_acknowledged_stays_away_and_the_rest_comes_again) {
    some_stay("acks", false);
}

TEST(what_was_acknowledged_in_a_quorum_queue_stays_away_and_the_rest_comes_again) {
    some_stay("acks-quorum", true);
}

TEST(what_is_said_before_the_end_is_sent) {
    start("end", false);
    publish_many("end", 10);
    test_consumer_start(&consumer, farm_url(farm.server.port, ""), "end");
    test_consumer_wait(&consumer, 10);
    for (size_t i = 0; i < 10; i += 2)
        test_consumer_ack(&consumer, i);
    test_consumer_close(&consumer);
    client_wait_count(&client, "end", 5);
    client_close(&client);
}

TEST(what_is_given_back_comes_again) {
    start("back", true);
    client_publish(&client, "back", "one");
    test_consumer_start(&consumer, farm_url(farm.server.port, ""), "back");
    test_consumer_wait(&consumer, 1);
    test_consumer_giveback(&consumer, 0);
    test_consumer_wait(&consumer, 2);
    CHECK_STR(test_consumer_body(&consumer, 1), "one");
    CHECK(consumer.got[1].message->redelivered);
    CHECK_INT(consumer.gone_n, 0);
    test_consumer_ack(&consumer, 1);
    test_consumer_close(&consumer);
    client_wait_count(&client, "back", 0);
    client_close(&client);
}

TEST(nothing_comes_before_it_is_fetched_nor_after) {
    struct queue_config config = test_consumer_config(farm_url(farm.server.port, ""), "fetch");

    start("fetch", false);
    publish_many("fetch", 3);
    test_consumer_open(&consumer, &config);
    test_consumer_wait_line(&consumer, "the queue fetch is there");
    test_consumer_idle(&consumer, 200); /* sleep: no more messages come */
    CHECK_INT(consumer.got_n, 0);
    queue_broker_amqp.fetch(consumer.link, true);
    test_consumer_wait(&consumer, 3);
    queue_broker_amqp.fetch(consumer.link, false);
    client_wait_consumers(&client, "fetch", 0);
    publish_many("fetch", 2);
    test_consumer_idle(&consumer, 200); /* sleep: no more messages come */
    CHECK_INT(consumer.got_n, 3);
    test_consumer_giveback(&consumer, 2); /* messages that are out can still be given back */
    test_consumer_ack(&consumer, 1);
    client_wait_count(&client, "fetch", 3);
    queue_broker_amqp.fetch(consumer.link, true);
    test_consumer_wait(&consumer, 6);
    test_consumer_ack(&consumer, 0); /* it was out all the time */
    test_consumer_close(&consumer);
    client_wait_count(&client, "fetch", 3);
    client_close(&client);
}

TEST(what_is_given_back_at_the_end_does_not_come_again) {
    start("stop", true);
    publish_many("stop", 5);
    test_consumer_start(&consumer, farm_url(farm.server.port, ""), "stop");
    test_consumer_wait(&consumer, 5);
    queue_broker_amqp.fetch(consumer.link, false);
    for (size_t i = 0; i < 5; i++)
        test_consumer_giveback(&consumer, i);
    client_wait_count(&client, "stop", 5);
    test_consumer_idle(&consumer, 100); /* sleep: no more messages come */
    CHECK_INT(consumer.got_n, 5);
    test_consumer_close(&consumer);
    client_close(&client);
}

/* Another client has the queue exclusively. */
TEST(a_server_that_refuses_to_deliver_is_asked_again) {
    static struct client jealous;

    start("jealous", false);
    client_open(&jealous, farm.server.port);
    (void)amqp_basic_consume(jealous.conn, 1, amqp_cstring_bytes("jealous"), amqp_empty_bytes, 0, 0,
                             1, amqp_empty_table);
    CHECK_INT(amqp_get_rpc_reply(jealous.conn).reply_type, AMQP_RESPONSE_NORMAL);
    test_consumer_start(&consumer, farm_url(farm.server.port, ""), "jealous");
    test_consumer_wait_line(&consumer, "is lost: consuming: ACCESS_REFUSED");
    client_close(&jealous);
    client_publish(&client, "jealous", "one");
    test_consumer_wait(&consumer, 1);
    test_consumer_ack(&consumer, 0);
    test_consumer_close(&consumer);
    client_close(&client);
}

TEST(a_queue_that_is_not_there_is_waited_for) {
    client_open(&client, farm.server.port);
    test_consumer_start(&consumer, farm_url(farm.server.port, ""), "later");
    test_consumer_wait_line(&consumer, "no queue 'later'");
    CHECK(!consumer.ready);
    client_declare(&client, "later", false, NULL);
    client_publish(&client, "later", "one");
    test_consumer_wait(&consumer, 1);
    CHECK(consumer.ready);
    test_consumer_ack(&consumer, 0);
    test_consumer_close(&consumer);
    client_close(&client);
}

TEST(a_queue_that_is_deleted_and_made_again_is_consumed_again) {
    start("deleted", false);
    publish_many("deleted", 15);
    test_consumer_start(&consumer, farm_url(farm.server.port, ""), "deleted");
    test_consumer_wait(&consumer, 10);
    client_delete(&client, "deleted");
    test_consumer_wait_line(&consumer, "was deleted");
    CHECK(!consumer.ready);
    CHECK_INT(consumer.gone_n,
              10); /* none is out any more: the prefetch counts for the new queue */
    client_declare(&client, "deleted", true, NULL);
    publish_many("deleted", 15);
    test_consumer_wait(&consumer, 20);
    test_consumer_idle(&consumer, 200); /* sleep: no more messages come */
    CHECK_INT(consumer.got_n, 20);
    test_consumer_ack(&consumer, 0); /* of the deleted queue: without effect */
    test_consumer_giveback(&consumer, 1);
    for (size_t i = 10; i < 25; i++) {
        test_consumer_wait(&consumer, i + 1);
        test_consumer_ack(&consumer, i);
    }
    test_consumer_idle(&consumer, 100); /* sleep: no more messages come */
    CHECK_INT(consumer.gone_n, 10);
    test_consumer_close(&consumer);
    client_wait_count(&client, "deleted", 0);
    client_close(&client);
}

TEST(a_wrong_password_is_told_and_not_shown) {
    char url[200];

    snprintf(url, sizeof(url), "amqp://%s:wr0ng-w0rd@127.0.0.1:%d", SERVER_USER, farm.server.port);
    test_consumer_start(&consumer, url, "props");
    test_consumer_wait_line(&consumer, "ACCESS_REFUSED");
    CHECK(strstr(consumer.log, "wr0ng") == NULL);
    CHECK_HAS(consumer.log, "the next try is in");
    test_consumer_close(&consumer);
}

TEST(a_virtual_host_that_is_not_there_is_told) {
    char url[200];

    snprintf(url, sizeof(url), "amqp://%s:%s@127.0.0.1:%d/no%%2Fwhere", SERVER_USER,
             SERVER_PASSWORD_IN_URL, farm.server.port);
    test_consumer_start(&consumer, url, "props");
    test_consumer_wait_line(&consumer, "no/where");
    test_consumer_close(&consumer);
}

TEST(of_two_hosts_the_one_that_is_there_is_used) {
    char url[200];

    start("hosts", false);
    client_publish(&client, "hosts", "one");
    snprintf(url, sizeof(url), "amqp://%s:%s@127.0.0.1:1,127.0.0.1:%d/%%2F", SERVER_USER,
             SERVER_PASSWORD_IN_URL, farm.server.port);
    test_consumer_start(&consumer, url, "hosts");
    test_consumer_wait_line(&consumer, "127.0.0.1:1: it cannot be reached");
    test_consumer_wait(&consumer, 1);
    test_consumer_ack(&consumer, 0);
    test_consumer_close(&consumer);
    client_close(&client);
}

/* TLS. */

static const char *tls_url(const char *host, const char *options) {
    static char url[2000];

    snprintf(url, sizeof(url), "amqps://%s:%s@%s:%d?heartbeat=60s&connect_timeout=60s%s",
             SERVER_USER, SERVER_PASSWORD_IN_URL, host, farm.server.tls_port, options);
    return url;
}

static const char *with_files(const char *fmt) {
    static char options[1200];
    const char *f = farm.server.folder;

    options[0] = '\0';
    if (strchr(fmt, 'a') != NULL)
        snprintf(options, sizeof(options), "&tls_ca=%s/ca.crt", f);
    if (strchr(fmt, 'c') != NULL)
        snprintf(options + strlen(options), sizeof(options) - strlen(options),
                 "&tls_cert=%s/client.crt&tls_key=%s/client.key", f, f);
    return options;
}

TEST(messages_come_through_tls_where_the_certificate_is_right) {
    const char *urls[] = {"localhost", "127.0.0.1", "localhost", "127.0.0.1"};
    const char *files[] = {"a", "a", "ac", ""};

    start("tls", false);
    for (size_t i = 0; i < 4; i++) {
        char options[1400];

        snprintf(options, sizeof(options), "%s%s", with_files(files[i]),
                 i == 3 ? "&tls_verify=no" : "");
        client_publish(&client, "tls", "one");
        test_consumer_start(&consumer, tls_url(urls[i], options), "tls");
        test_consumer_wait(&consumer, 1);
        CHECK(test_consumer_delay(&consumer, 0, 250)); /* over the other connection */
        test_consumer_wait(&consumer, 2);
        test_consumer_ack(&consumer, 1);
        test_consumer_close(&consumer);
    }
    client_wait_count(&client, "tls", 0);
    client_close(&client);
}

TEST(bodies_of_many_records_come_whole_through_tls) {
    enum { LEN = 1 << 20 };
    unsigned char *body = malloc(LEN);

    for (size_t i = 0; i < LEN; i++)
        body[i] = (unsigned char)(i * 11 ^ i >> 8);
    start("tls-body", false);
    for (int i = 0; i < 5; i++)
        client_send(&client, "", "tls-body", NULL, body, LEN - (size_t)i);
    client_confirm(&client);
    test_consumer_start(&consumer, tls_url("localhost", with_files("a")), "tls-body");
    test_consumer_wait(&consumer, 5);
    for (size_t i = 0; i < 5; i++) {
        CHECK_INT(consumer.got[i].message->body.len, LEN - i);
        CHECK(memcmp(consumer.got[i].message->body.at, body, LEN - i) == 0);
        test_consumer_ack(&consumer, i);
    }
    test_consumer_close(&consumer);
    client_wait_count(&client, "tls-body", 0);
    client_close(&client);
    free(body);
}

TEST(a_certificate_that_nobody_vouches_for_is_refused) {
    test_consumer_start(&consumer, tls_url("localhost", ""), "tls");
    test_consumer_wait_line(&consumer, "TLS: self-signed certificate in certificate chain");
    CHECK(!consumer.ready);
    test_consumer_close(&consumer);
}

TEST(a_certificate_for_another_host_is_refused) {
    char options[1400];

    snprintf(options, sizeof(options), "%s&tls_name=elsewhere.example", with_files("a"));
    test_consumer_start(&consumer, tls_url("localhost", options), "tls");
    test_consumer_wait_line(&consumer, "TLS: hostname mismatch");
    CHECK(!consumer.ready);
    test_consumer_close(&consumer);
    snprintf(options, sizeof(options), "%s&tls_name=127.0.0.2", with_files("a"));
    test_consumer_start(&consumer, tls_url("127.0.0.1", options), "tls");
    test_consumer_wait_line(&consumer, "TLS: IP address mismatch");
    test_consumer_close(&consumer);
}

TEST(a_link_is_closed_whatever_it_is_at) {
    test_consumer_start(&consumer, farm_url(farm.server.port, ""), "props");
    test_consumer_close(&consumer);
    test_consumer_start(&consumer, "amqp://127.0.0.1:1", "props");
    test_consumer_idle(&consumer, 50); /* sleep: any moment of a connection that is refused */
    test_consumer_close(&consumer);
}

TEST(tables_as_deep_as_a_frame_do_no_harm) {
    enum { DEEP = 20000 };
    amqp_field_value_t *levels = calloc(DEEP, sizeof(*levels));
    amqp_table_entry_t headers[2] = {entry("deep", AMQP_FIELD_KIND_ARRAY),
                                     entry_text("flat", "here")};
    amqp_basic_properties_t p = {._flags = AMQP_BASIC_HEADERS_FLAG,
                                 .headers = {.num_entries = 2, .entries = headers}};

    for (int i = 0; i < DEEP; i++) {
        levels[i].kind = AMQP_FIELD_KIND_ARRAY;
        if (i + 1 < DEEP)
            levels[i].value.array = (amqp_array_t){.num_entries = 1, .entries = &levels[i + 1]};
    }
    headers[0].value.value.array = levels[0].value.array;
    start("deep", false);
    client_send(&client, "", "deep", &p, "x", 1);
    client_confirm(&client);
    test_consumer_start(&consumer, farm_url(farm.server.port, ""), "deep");
    test_consumer_wait(&consumer, 1);
    CHECK_STR(test_consumer_header(&consumer, 0, "flat"), "here");
    CHECK_STR(test_consumer_header(&consumer, 0, "deep"), "(none)");
    CHECK(test_consumer_delay(&consumer, 0, 250)); /* its copy is nested as deeply */
    test_consumer_wait(&consumer, 2);
    test_consumer_ack(&consumer, 1);
    test_consumer_close(&consumer);
    client_close(&client);
    free(levels);
}

int main(int argc, char **argv) {
    int rc;

    rabbit_settle_ms = 100; /* no test here kills the server */
    test_at_a_time = 4;
    farm_start(&farm, temp_folder());
    rc = test_main(argc, argv);
    farm_stop(&farm);
    return rc;
}
