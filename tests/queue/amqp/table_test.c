/*
 * Without a server: hostile tables, trusted and untrusted headers, the
 * properties of copies, URLs, and the steps of delays.
 */
#include <math.h>

#include "../../temp.h"
#include "../../test.h"
#include "base/error.h"
#include "queue/amqp/rabbit.h"

static struct rabbit_fields fields;

static amqp_table_entry_t entry(const char *name, char kind) {
    amqp_table_entry_t made = {.key = amqp_cstring_bytes(name)};

    made.value.kind = (uint8_t)kind;
    return made;
}

static amqp_table_entry_t text(const char *name, const char *value) {
    amqp_table_entry_t made = entry(name, AMQP_FIELD_KIND_UTF8);

    made.value.value.bytes = amqp_cstring_bytes(value);
    return made;
}

/* The value as text, with '=' before JSON; "(none)". */
static const char *shown(const char *name) {
    static char buf[2000];

    for (size_t i = 0; i < fields.n; i++) {
        const struct rabbit_field *f = &fields.at[i];

        if (f->name_len == strlen(name) &&
            memcmp(fields.text.at + f->name, name, f->name_len) == 0) {
            snprintf(buf, sizeof(buf), "%s%.*s", f->json ? "=" : "", (int)f->value_len,
                     fields.text.at + f->value);
            return buf;
        }
    }
    return "(none)";
}

static void show(amqp_table_entry_t *entries, int n) {
    amqp_table_t table = {.num_entries = n, .entries = entries};

    rabbit_fields_reset(&fields);
    rabbit_fields_headers(&fields, &table);
    CHECK(!rabbit_fields_failed(&fields));
}

TEST(numbers_that_are_none_are_texts) {
    amqp_field_value_t list[1] = {{.kind = AMQP_FIELD_KIND_F64, .value = {.f64 = -INFINITY}}};
    amqp_table_entry_t e[4] = {entry("nan", AMQP_FIELD_KIND_F64), entry("inf", AMQP_FIELD_KIND_F32),
                               entry("list", AMQP_FIELD_KIND_ARRAY),
                               entry("huge", AMQP_FIELD_KIND_F64)};

    e[0].value.value.f64 = NAN;
    e[1].value.value.f32 = INFINITY;
    e[2].value.value.array = (amqp_array_t){.num_entries = 1, .entries = list};
    e[3].value.value.f64 = 1.7976931348623157e308;
    show(e, 4);
    CHECK_STR(shown("nan"), "NaN");
    CHECK_STR(shown("inf"), "Infinity");
    CHECK_STR(shown("list"), "=[\"-Infinity\"]");
    CHECK_STR(shown("huge"), "=1.7976931348623157e+308");
}

/* `idem dead --json` prints it in this form. */
TEST(what_nobody_sees_in_a_nested_text_is_escaped) {
    amqp_field_value_t list[1] = {{.kind = AMQP_FIELD_KIND_UTF8}};
    amqp_table_entry_t e[1] = {entry("list", AMQP_FIELD_KIND_ARRAY)};

    list[0].value.bytes =
        amqp_cstring_bytes("a\"\n\x7f\xc2\x9b\xe2\x80\xae\xf3\xa0\x81\x81\xc3\xa9\\");
    e[0].value.value.array = (amqp_array_t){.num_entries = 1, .entries = list};
    show(e, 1);
    CHECK_STR(shown("list"), "=[\"a\\\"\\u000a\\u007f\\u009b\\u202e\\udb40\\udc41\xc3\xa9\\\\\"]");
}

TEST(decimals_have_all_their_zeros) {
    amqp_table_entry_t e[3] = {entry("none", AMQP_FIELD_KIND_DECIMAL),
                               entry("some", AMQP_FIELD_KIND_DECIMAL),
                               entry("many", AMQP_FIELD_KIND_DECIMAL)};

    e[0].value.value.decimal = (amqp_decimal_t){.decimals = 0, .value = UINT32_MAX};
    e[1].value.value.decimal = (amqp_decimal_t){.decimals = 2, .value = 12345};
    e[2].value.value.decimal = (amqp_decimal_t){.decimals = 255, .value = UINT32_MAX};
    show(e, 3);
    CHECK_STR(shown("none"), "=4294967295");
    CHECK_STR(shown("some"), "=123.45");
    CHECK_INT(strlen(shown("many")), 1 + 2 + 255);
    CHECK(strncmp(shown("many"), "=0.000", 6) == 0);
}

TEST(what_is_nested_too_deep_or_has_no_name_is_left_out) {
    amqp_field_value_t levels[RABBIT_DEPTH_MAX + 2];
    amqp_table_entry_t e[4] = {entry("deep", AMQP_FIELD_KIND_ARRAY),
                               entry("just", AMQP_FIELD_KIND_ARRAY), text("no\xc3 name", "x"),
                               text("", "empty name")};

    for (int i = 0; i < RABBIT_DEPTH_MAX + 2; i++) {
        levels[i] = (amqp_field_value_t){.kind = AMQP_FIELD_KIND_ARRAY};
        if (i + 1 < RABBIT_DEPTH_MAX + 2)
            levels[i].value.array = (amqp_array_t){.num_entries = 1, .entries = &levels[i + 1]};
    }
    e[0].value = levels[0];
    e[1].value = levels[1];
    show(e, 4);
    CHECK_INT(fields.n, 2);
    CHECK_STR(shown("deep"), "(none)");
    CHECK(strncmp(shown("just"), "=[[[", 4) == 0);
    CHECK_STR(shown(""), "empty name");
}

TEST(kinds_that_nobody_knows_are_nothing) {
    amqp_table_entry_t e[1] = {entry("odd", '?')};

    show(e, 1);
    CHECK_STR(shown("odd"), "=null");
}

TEST(the_headers_of_the_way_are_not_shown) {
    amqp_table_entry_t e[] = {text("x-death", "a"),
                              text("x-first-death-queue", "a"),
                              text("x-delivery-count", "a"),
                              text("idem-copy", "a"),
                              text("idem-origin-exchange", "a"),
                              text("idem-origin-user-id", "a"),
                              text("idem-origin-cc", "other"),
                              text("idem-verdict", "dead"),
                              text("x-mine", "b")};

    show(e, sizeof(e) / sizeof(e[0]));
    CHECK_INT(fields.n, 3);
    CHECK_STR(shown("CC"), "other");
    CHECK_STR(shown("idem-verdict"), "dead");
    CHECK_STR(shown("x-mine"), "b");
}

/* The user of a message. */

static const char *user_shown(const char *said, bool copy, const char *origin) {
    amqp_table_entry_t e[2];
    amqp_basic_properties_t p = {._flags = AMQP_BASIC_HEADERS_FLAG, .headers = {.entries = e}};
    struct rabbit_envelope envelope = {0};

    if (copy)
        e[p.headers.num_entries++] = entry("idem-copy", AMQP_FIELD_KIND_I64);
    if (origin != NULL)
        e[p.headers.num_entries++] = text("idem-origin-user-id", origin);
    if (said != NULL) {
        p._flags |= AMQP_BASIC_USER_ID_FLAG;
        p.user_id = amqp_cstring_bytes(said);
    }
    rabbit_fields_reset(&fields);
    rabbit_fields_properties(&fields, &envelope, &p, "us");
    return shown("user_id");
}

TEST(a_user_is_believed_where_the_server_vouches_for_it) {
    CHECK_STR(user_shown("alice", false, NULL), "alice");
    CHECK_STR(user_shown("alice", false, "bob"), "alice");
    CHECK_STR(user_shown("us", true, "bob"), "bob"); /* a copy of the consumer's own */
    CHECK_STR(user_shown("us", true, NULL), "(none)");
    CHECK_STR(user_shown("alice", true, "bob"), "(none)"); /* claims to be a copy, but is not */
    CHECK_STR(user_shown(NULL, true, "bob"), "(none)");
    CHECK_STR(user_shown(NULL, false, "bob"), "(none)");
}

/* The exchange and the routing key that are shown, with a slash in between. */
static const char *origin_shown(const char *said, bool copy, bool origin) {
    amqp_table_entry_t e[3];
    amqp_basic_properties_t p = {._flags = AMQP_BASIC_HEADERS_FLAG, .headers = {.entries = e}};
    struct rabbit_envelope envelope = {.exchange = amqp_cstring_bytes("e"),
                                       .routing_key = amqp_cstring_bytes("r")};
    static char both[100];

    if (copy)
        e[p.headers.num_entries++] = entry("idem-copy", AMQP_FIELD_KIND_I64);
    if (origin) {
        e[p.headers.num_entries++] = text("idem-origin-exchange", "shop");
        e[p.headers.num_entries++] = text("idem-origin-routing-key", "eu");
    }
    if (said != NULL) {
        p._flags |= AMQP_BASIC_USER_ID_FLAG;
        p.user_id = amqp_cstring_bytes(said);
    }
    rabbit_fields_reset(&fields);
    rabbit_fields_properties(&fields, &envelope, &p, "us");
    snprintf(both, sizeof(both), "%s/", shown("exchange"));
    snprintf(both + strlen(both), sizeof(both) - strlen(both), "%s", shown("routing_key"));
    return both;
}

TEST(a_way_is_believed_where_the_server_vouches_for_it) {
    CHECK_STR(origin_shown(NULL, false, false), "e/r");
    CHECK_STR(origin_shown("alice", false, true), "e/r"); /* chosen by the sender */
    CHECK_STR(origin_shown("us", false, true), "e/r");
    CHECK_STR(origin_shown("us", true, true), "shop/eu"); /* a copy of the consumer's own */
    CHECK_STR(origin_shown("us", true, false), "(none)/(none)");
    CHECK_STR(origin_shown("alice", true, true), "(none)/(none)");
    CHECK_STR(origin_shown(NULL, true, true), "(none)/(none)");
}

/* Messages and copies. */

static unsigned char encoded[200000];

/* A message as it arrives from a server with these properties. */
static struct rabbit_message *arrive(const amqp_basic_properties_t *p, const char *body) {
    struct rabbit_envelope envelope = {
        .exchange = amqp_cstring_bytes("shop"), .routing_key = amqp_cstring_bytes("key"), .tag = 9};
    amqp_frame_t frame = {.frame_type = AMQP_FRAME_HEADER, .channel = 1};
    struct rabbit_message *message = NULL;
    struct rabbit_arrival arrival;
    const char *broken;
    amqp_pool_t pool;
    int len = amqp_encode_properties(AMQP_BASIC_CLASS, (void *)(uintptr_t)p,
                                     (amqp_bytes_t){.bytes = encoded, .len = sizeof(encoded)});

    CHECK(len > 0);
    init_amqp_pool(&pool, 4096);
    frame.payload.properties.class_id = AMQP_BASIC_CLASS;
    frame.payload.properties.body_size = strlen(body);
    frame.payload.properties.raw = (amqp_bytes_t){.bytes = encoded, .len = (size_t)len};
    CHECK_INT(amqp_decode_properties(AMQP_BASIC_CLASS, &pool, frame.payload.properties.raw,
                                     &frame.payload.properties.decoded),
              0);
    rabbit_arrival_init(&arrival);
    rabbit_arrival_begin(&arrival, &envelope);
    if (!rabbit_arrival_read(&arrival, &frame, "q", "us", &message, &broken)) {
        CHECK(broken == NULL);
        frame.frame_type = AMQP_FRAME_BODY;
        frame.payload.body_fragment = amqp_cstring_bytes(body);
        CHECK(rabbit_arrival_read(&arrival, &frame, "q", "us", &message, &broken));
    }
    CHECK(message != NULL);
    rabbit_arrival_release(&arrival);
    empty_amqp_pool(&pool);
    return message;
}

TEST(frames_in_another_order_are_no_message) {
    struct rabbit_envelope envelope = {0};
    amqp_frame_t frame = {.frame_type = AMQP_FRAME_BODY};
    struct rabbit_message *message;
    struct rabbit_arrival arrival;
    amqp_basic_properties_t p = {0};
    const char *broken = NULL;

    rabbit_arrival_init(&arrival);
    CHECK(!rabbit_arrival_read(&arrival, &frame, "q", "us", &message, &broken));
    CHECK(broken != NULL);
    rabbit_arrival_begin(&arrival, &envelope);
    CHECK(!rabbit_arrival_read(&arrival, &frame, "q", "us", &message, &broken));
    CHECK(broken != NULL);
    frame.frame_type = AMQP_FRAME_HEADER;
    frame.payload.properties.class_id = AMQP_BASIC_CLASS;
    frame.payload.properties.decoded = &p;
    frame.payload.properties.body_size = UINT64_MAX;
    CHECK(!rabbit_arrival_read(&arrival, &frame, "q", "us", &message, &broken));
    CHECK(broken != NULL);
    frame.payload.properties.body_size = 3;
    CHECK(!rabbit_arrival_read(&arrival, &frame, "q", "us", &message, &broken));
    CHECK(broken == NULL);
    frame.frame_type = AMQP_FRAME_BODY;
    frame.payload.body_fragment = amqp_cstring_bytes("four");
    CHECK(!rabbit_arrival_read(&arrival, &frame, "q", "us", &message, &broken));
    CHECK(broken != NULL);
    rabbit_arrival_release(&arrival);
}

static bool has(const struct rabbit_copy *copy, const char *name) {
    for (int i = 0; i < copy->properties.headers.num_entries; i++)
        if (rabbit_is(copy->properties.headers.entries[i].key, name))
            return true;
    return false;
}

TEST(a_copy_carries_nothing_that_leads_it_astray) {
    amqp_table_entry_t e[] = {text("x-death", "a"),
                              text("BCC", "a"),
                              text("CC", "other"),
                              text("x-delivery-count", "a"),
                              text("idem-copy", "old"),
                              text("idem-verdict", "dead"),
                              text("idem-queue", "old"),
                              text("mine", "b"),
                              text("idem-origin-exchange", "shop"),
                              text("idem-origin-routing-key", "key")};
    amqp_basic_properties_t p = {
        ._flags = AMQP_BASIC_HEADERS_FLAG | AMQP_BASIC_EXPIRATION_FLAG | AMQP_BASIC_USER_ID_FLAG |
                  AMQP_BASIC_TYPE_FLAG,
        .expiration = amqp_cstring_bytes("100"),
        .user_id = amqp_cstring_bytes("us"),
        .type = amqp_cstring_bytes("order"),
        .headers = {.num_entries = sizeof(e) / sizeof(e[0]), .entries = e},
    };
    struct rabbit_message *message = arrive(&p, "body");
    struct queue_dead_fields dead_fields = {.verdict = "dead"};
    struct rabbit_copy copy;

    for (int purpose = RABBIT_FOR_LATER; purpose <= RABBIT_FOR_QUEUE; purpose++) {
        CHECK(
            rabbit_copy_make(&copy, message, (enum rabbit_purpose)purpose, &dead_fields, "us", 77));
        CHECK_INT(copy.properties._flags & AMQP_BASIC_EXPIRATION_FLAG, 0);
        CHECK_INT(copy.properties.delivery_mode, 2);
        CHECK(rabbit_is(copy.properties.user_id, "us"));
        CHECK(rabbit_is(copy.properties.type, "order"));
        CHECK(!has(&copy, "x-death") && !has(&copy, "BCC") && !has(&copy, "CC"));
        CHECK(!has(&copy, "x-delivery-count"));
        CHECK(has(&copy, "mine") && has(&copy, "idem-origin-cc"));
        CHECK(has(&copy, "idem-origin-exchange") && has(&copy, "idem-origin-delivery-mode"));
        CHECK_INT(has(&copy, "idem-verdict"), purpose != RABBIT_FOR_QUEUE);
        CHECK_INT(has(&copy, "idem-dead-at"), purpose == RABBIT_FOR_DEAD);
        CHECK_INT(rabbit_header_find(&copy.properties.headers, RABBIT_COPY)->value.i64, 77);
        rabbit_copy_release(&copy);
    }
    CHECK(rabbit_copy_make(&copy, message, RABBIT_FOR_LATER, NULL, NULL, 1));
    CHECK_INT(copy.properties._flags & AMQP_BASIC_USER_ID_FLAG, 0);
    rabbit_copy_release(&copy);
    rabbit_message_leave(message);
}

/* Never less than librabbitmq writes for it: otherwise half of a message would be sent. */
TEST(the_size_of_a_copy_is_known_before_it_is_sent) {
    static char reason[1001], long_text[5000];
    amqp_table_entry_t e[] = {text("CC", "other"), text("mine", long_text)};
    amqp_basic_properties_t p = {._flags = AMQP_BASIC_HEADERS_FLAG,
                                 .headers = {.num_entries = 2, .entries = e}};
    struct queue_dead_fields dead_fields = {
        .verdict = "dead", .reason = reason, .prefix = "p", .hash = "h"};
    struct rabbit_message *message;
    struct rabbit_copy copy;
    int len;

    memset(reason, 'r', sizeof(reason) - 1);
    memset(long_text, 'l', sizeof(long_text) - 1);
    e[1] = text("mine", long_text);
    message = arrive(&p, "");
    CHECK(rabbit_copy_make(&copy, message, RABBIT_FOR_DEAD, &dead_fields, "us", UINT32_MAX));
    len = amqp_encode_properties(AMQP_BASIC_CLASS, &copy.properties,
                                 (amqp_bytes_t){.bytes = encoded, .len = sizeof(encoded)});
    CHECK(len > 6000);
    CHECK(copy.size >= (size_t)len + 12);
    rabbit_copy_release(&copy);
    rabbit_message_leave(message);
}

/* URLs. */

static const char *refused(const char *url) {
    static struct idem_error err;
    struct rabbit_config config;

    err.text[0] = '\0';
    if (rabbit_config_read(url, &config, &err) == 0) {
        rabbit_config_release(&config);
        return "(none)";
    }
    return err.text;
}

TEST(a_url_says_where_and_who) {
    struct rabbit_config c;
    struct idem_error err;

    CHECK_INT(rabbit_config_read("amqp://h", &c, &err), 0);
    CHECK_STR(c.hosts[0].name, "h");
    CHECK_INT(c.hosts[0].port, 5672);
    CHECK_STR(c.user, "guest");
    CHECK_STR(c.password, "guest");
    CHECK_STR(c.vhost, "/");
    CHECK_STR(c.name, "idem");
    CHECK_INT(c.heartbeat_ms, 10000);
    rabbit_config_release(&c);
    CHECK_INT(rabbit_config_read("amqps://a%40b:p%2Fw@h1,[::1]:77/v%2Fw?heartbeat=1m&name=n&"
                                 "tls_verify=no&connect_timeout=3s",
                                 &c, &err),
              0);
    CHECK(c.tls && !c.tls_verify);
    CHECK_INT(c.hosts_n, 2);
    CHECK_INT(c.hosts[0].port, 5671);
    CHECK_STR(c.hosts[1].name, "::1");
    CHECK_INT(c.hosts[1].port, 77);
    CHECK_STR(c.user, "a@b");
    CHECK_STR(c.password, "p/w");
    CHECK_STR(c.vhost, "v/w");
    CHECK_INT(c.heartbeat_ms, 60000);
    CHECK_INT(c.connect_timeout_ms, 3000);
    rabbit_config_release(&c);
}

TEST(a_password_comes_from_a_file_or_the_environment) {
    char url[600], path[400];
    struct rabbit_config c;
    struct idem_error err;
    FILE *file;

    snprintf(path, sizeof(path), "%s/password", temp_folder());
    file = fopen(path, "w");
    CHECK(file != NULL);
    fputs("fi/le\n", file);
    fclose(file);
    snprintf(url, sizeof(url), "amqp://u@h?password_file=%s", path);
    CHECK_INT(rabbit_config_read(url, &c, &err), 0);
    CHECK_STR(c.password, "fi/le");
    rabbit_config_release(&c);
    CHECK_HAS(refused("amqp://u@h"), "a user needs a password");
    setenv("IDEM_AMQP_PASSWORD", "env", 1);
    CHECK_INT(rabbit_config_read("amqp://u@h", &c, &err), 0);
    CHECK_STR(c.password, "env");
    rabbit_config_release(&c);
}

TEST(a_url_with_a_mistake_says_which_and_shows_no_password) {
    static const char *const urls[] = {
        "amqp:h",
        "amqp:/socket",
        "amqp://u:s3cret@",
        "amqp://u:s3cret@h:0",
        "amqp://u:s3cret@h/a/b",
        "amqp://u:s3cret@h?heartbeat=0s",
        "amqp://u:s3cret@h?heartbeat=1500ms",
        "amqp://u:s3cret@h?tls_ca=/etc/passwd",
        "amqps://u:s3cret@h?tls_ca=/nowhere",
        "amqps://u:s3cret@h?tls_cert=/etc/passwd",
        "amqp://u:s3cret@h?nothing=1",
        "amqp://u:s3c?ret@h",
        "amqp://h?name=",
        "http://u:s3cret@h",
    };

    for (size_t i = 0; i < sizeof(urls) / sizeof(urls[0]); i++) {
        CHECK(strcmp(refused(urls[i]), "(none)") != 0);
        CHECK(strstr(refused(urls[i]), "s3c") == NULL);
    }
    CHECK_HAS(refused("amqp://h?heartbeat=0s"), "1s to 10m");
    CHECK_HAS(refused("amqp://h/a/b"), "%2F");
    CHECK_HAS(refused("amqp://h?tls_verify=no"), "amqps:");
}

/* Names. */

static int opened(const char *queue, const char *dead, unsigned prefetch, struct idem_error *err) {
    struct queue_config config = {.url = "amqp://127.0.0.1:1",
                                  .queue = queue,
                                  .dead_letter = dead,
                                  .prefetch = prefetch,
                                  .topology = true};
    struct queue_events events = {0};
    struct queue_link *link;

    return queue_broker_amqp.open(&config, NULL, &events, &link, err);
}

TEST(names_that_no_queue_can_have_are_refused) {
    struct idem_error err;
    char name[300];

    memset(name, 'n', sizeof(name));
    name[231] = '\0';
    CHECK_INT(opened("", NULL, 1, &err), IDEM_E_INVALID);
    CHECK_INT(opened("a\xff", NULL, 1, &err), IDEM_E_INVALID);
    CHECK_INT(opened(name, NULL, 1, &err), IDEM_E_INVALID);
    CHECK_HAS(err.text, "230 bytes");
    CHECK_INT(opened("q", "q", 1, &err), IDEM_E_INVALID);
    CHECK_INT(opened("q", "", 1, &err), IDEM_E_INVALID);
    CHECK_INT(opened("q", "d", 0, &err), IDEM_E_INVALID);
    CHECK_HAS(err.text, "prefetch");
}

/* Delays. */

static void delays_check(int64_t max, const char *want) {
    struct queue_config config = {.queue = "q", .delay_max_ms = max};
    struct rabbit_topology t;
    char got[400] = "";

    CHECK_INT(rabbit_topology_make(&t, &config, NULL), 0);
    for (size_t i = 0; i < t.delays_n; i++)
        snprintf(got + strlen(got), sizeof(got) - strlen(got), "%lld ", (long long)t.delays[i]);
    CHECK_STR(got, want);
    CHECK_STR(t.dead, "q.dead");
    rabbit_topology_release(&t);
}

TEST(there_are_a_few_delays_from_the_least_to_the_most) {
    delays_check(300000, "125 250 500 1000 2000 4000 8000 16000 32000 64000 128000 256000 300000 ");
    delays_check(0, "125 ");
    delays_check(5000, "125 250 500 1000 2000 4000 5000 ");
    delays_check(700, "125 250 500 700 ");
    delays_check(INT64_MAX,
                 "125 500 2000 8000 32000 128000 512000 2048000 8192000 32768000 131072000 "
                 "524288000 604800000 ");
    delays_check(86400000,
                 "125 500 2000 8000 32000 128000 512000 2048000 8192000 32768000 86400000 ");
}

TEST(a_delay_is_the_next_longer_one) {
    struct queue_config config = {.queue = "q", .delay_max_ms = 5000};
    struct rabbit_topology t;
    char name[RABBIT_QUEUE_TEXT];

    CHECK_INT(rabbit_topology_make(&t, &config, NULL), 0);
    CHECK_STR(rabbit_topology_name(&t, rabbit_topology_delay(&t, 1), name), "q.idem.retry.125");
    CHECK_STR(rabbit_topology_name(&t, rabbit_topology_delay(&t, 300), name), "q.idem.retry.500");
    CHECK_STR(rabbit_topology_name(&t, rabbit_topology_delay(&t, 1000), name), "q.idem.retry.1000");
    CHECK_STR(rabbit_topology_name(&t, rabbit_topology_delay(&t, 1001), name), "q.idem.retry.2000");
    CHECK_STR(rabbit_topology_name(&t, rabbit_topology_delay(&t, 4001), name), "q.idem.retry.5000");
    CHECK_STR(rabbit_topology_name(&t, rabbit_topology_delay(&t, 9999), name), "q.idem.retry.5000");
    CHECK_STR(rabbit_topology_name(&t, -1, name), "q.dead");
    rabbit_topology_release(&t);
}

TEST_MAIN
