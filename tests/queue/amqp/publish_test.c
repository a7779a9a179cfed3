/*
 * Copies, on a real server: delays, dead letters, and the fate of both if a
 * queue is missing, full, or of another kind.
 */
#include <sys/stat.h>

#include "../../temp.h"
#include "../../test.h"
#include "client.h"
#include "farm.h"
#include "proxy.h"
#include "test_consumer.h"
#include "wait.h"

static struct farm farm;
static struct client client;
static struct test_consumer consumer;

static const struct queue_dead_fields dead_fields = {.verdict = "dead",
                                                     .reason = "exit \x01 status",
                                                     .attempts = 5,
                                                     .status = 70,
                                                     .prefix = "shop/",
                                                     .hash = "0123abcd"};

/* A queue with `n` messages, of which the consumer has the first. */
static void start(const char *queue, bool quorum, const char *body) {
    client_open(&client, farm.server.port);
    client_declare(&client, queue, quorum, NULL);
    client_publish(&client, queue, body);
    test_consumer_start(&consumer, farm_url(farm.server.port, ""), queue);
    test_consumer_wait(&consumer, 1);
}

static void finish(void) {
    test_consumer_close(&consumer);
    client_close(&client);
}

/* All variables of an expression. */
static char *variables(size_t i) {
    struct idem_error err;
    char *text;
    size_t len;

    CHECK_INT(queue_message_variables(consumer.got[i].message, &text, &len, &err), 0);
    text = realloc(text, len + 1);
    text[len] = '\0';
    return text;
}

/* With every property that the server or a copy could change. */
static void publish_rich(const char *exchange, const char *key, const char *cc) {
    amqp_field_value_t list[1] = {{.kind = AMQP_FIELD_KIND_UTF8}};
    amqp_table_entry_t headers[4] = {
        {.key = amqp_cstring_bytes("number"), .value = {.kind = AMQP_FIELD_KIND_I32}},
        {.key = amqp_cstring_bytes("CC"), .value = {.kind = AMQP_FIELD_KIND_ARRAY}},
        {.key = amqp_cstring_bytes("bytes"), .value = {.kind = AMQP_FIELD_KIND_BYTES}},
        {.key = amqp_cstring_bytes("no\xff name"), .value = {.kind = AMQP_FIELD_KIND_VOID}},
    };
    amqp_basic_properties_t p = {
        ._flags = AMQP_BASIC_HEADERS_FLAG | AMQP_BASIC_EXPIRATION_FLAG | AMQP_BASIC_USER_ID_FLAG |
                  AMQP_BASIC_MESSAGE_ID_FLAG | AMQP_BASIC_DELIVERY_MODE_FLAG |
                  AMQP_BASIC_CONTENT_TYPE_FLAG,
        .expiration = amqp_cstring_bytes("60000"),
        .user_id = amqp_cstring_bytes(SERVER_USER),
        .message_id = amqp_cstring_bytes("id-1"),
        .content_type = amqp_cstring_bytes("application/json"),
        .delivery_mode = 1,
        .headers = {.num_entries = 4, .entries = headers},
    };

    list[0].value.bytes = amqp_cstring_bytes(cc);
    headers[0].value.value.i32 = -7;
    headers[1].value.value.array = (amqp_array_t){.num_entries = 1, .entries = list};
    headers[2].value.value.bytes = (amqp_bytes_t){.bytes = "\xfe\x00", .len = 2};
    client_send(&client, exchange, key, &p, "{\"order\": 1}", 12);
    client_confirm(&client);
}

static void comes_back_as_it_was(const char *queue, bool quorum) {
    char other[64], *before, *after;
    int64_t began;

    snprintf(other, sizeof(other), "%s-other", queue);
    client_open(&client, farm.server.port);
    client_declare(&client, queue, quorum, NULL);
    client_declare(&client, other, false, NULL);
    client_bind(&client, "shop", queue, queue);
    client_bind(&client, "shop", other, other);
    publish_rich("shop", queue, other);
    client_wait_count(&client, other, 1);
    test_consumer_start(&consumer, farm_url(farm.server.port, ""), queue);
    test_consumer_wait(&consumer, 1);
    before = variables(0);
    CHECK_HAS(before, "\"exchange\":\"shop\"");
    CHECK_HAS(before, "\"CC\":[\"");
    for (size_t i = 0; i < 2; i++) {
        began = idem_loop_now();
        CHECK(test_consumer_delay(&consumer, i, 250));
        test_consumer_wait(&consumer, i + 2);
        CHECK(idem_loop_now() - began >=
              (i == 0 ? 250 + 100 : 250)); /* the queue of the first delay is new */
        after = variables(i + 1);
        CHECK_STR(after, before);
        free(after);
    }
    CHECK_INT(client_count(&client, other), 1);
    test_consumer_ack(&consumer, 2);
    test_consumer_idle(&consumer, 100); /* sleep: no more messages come */
    CHECK_INT(consumer.got_n, 3);
    free(before);
    finish();
}

TEST(a_delayed_message_comes_back_after_its_time_as_it_was) {
    comes_back_as_it_was("delay", false);
}

TEST(a_delayed_message_of_a_quorum_queue_comes_back_after_its_time_as_it_was) {
    comes_back_as_it_was("delay-quorum", true);
}

TEST(a_delayed_message_is_not_ours_any_more) {
    struct queue_config config =
        test_consumer_config(farm_url(farm.server.port, ""), "handed-over");

    config.delay_max_ms = 512000;
    client_open(&client, farm.server.port);
    client_declare(&client, "handed-over", true, NULL);
    client_publish(&client, "handed-over", "one");
    test_consumer_open(&consumer, &config);
    queue_broker_amqp.fetch(consumer.link, true);
    test_consumer_wait(&consumer, 1);
    CHECK(test_consumer_delay(&consumer, 0, 512000));
    test_consumer_close(&consumer);
    client_publish(&client, "handed-over", "two");
    test_consumer_start(&consumer, farm_url(farm.server.port, ""), "handed-over");
    test_consumer_wait(&consumer, 1);
    CHECK_STR(test_consumer_body(&consumer, 0),
              "two"); /* the original was acknowledged, or it would come first */
    CHECK_INT(client_count(&client, "handed-over.idem.retry.512000"), 1);
    finish();
}

TEST(delays_are_rounded_up_to_those_that_there_are) {
    start("rounded", false, "one");
    CHECK_INT(client_count(&client, "rounded.idem.retry.500"), -1);
    CHECK(test_consumer_delay(&consumer, 0, 251));
    CHECK_INT(client_count(&client, "rounded.idem.retry.250"), -1);
    CHECK(client_count(&client, "rounded.idem.retry.500") >=
          0); /* the message may be back already */
    test_consumer_wait(&consumer, 2);
    CHECK(test_consumer_delay(&consumer, 1, 86400000));
    CHECK(client_count(&client, "rounded.idem.retry.4000") >= 0);
    finish();
}

TEST(many_copies_may_be_under_way) {
    enum { MANY = 300 };
    struct queue_config config = test_consumer_config(farm_url(farm.server.port, ""), "many");
    client_open(&client, farm.server.port);
    client_declare(&client, "many", true, NULL);
    for (int i = 0; i < MANY; i++)
        client_send(&client, "", "many", NULL, &i, sizeof(i));
    client_confirm(&client);
    config.prefetch = MANY;
    test_consumer_open(&consumer, &config);
    queue_broker_amqp.fetch(consumer.link, true);
    test_consumer_wait(&consumer, MANY);
    for (size_t i = 0; i < MANY; i++)
        test_consumer_delay_begin(&consumer, i, 250);
    test_consumer_wait_told(&consumer, MANY);
    CHECK(consumer.taken);
    test_consumer_wait(&consumer, 2 * MANY);
    test_consumer_idle(&consumer, 200); /* sleep: no more messages come */
    CHECK_INT(consumer.got_n, 2 * MANY);
    finish();
}

/* Dead letters. */

static void letter_check(const char *queue, const char *dead) {
    amqp_message_t letter;

    CHECK(client_get(&client, dead, &letter));
    CHECK_STR(client_header(&letter, "idem-verdict"), "dead");
    CHECK_STR(client_header(&letter, "idem-reason"), "exit ? status");
    CHECK_STR(client_header(&letter, "idem-attempts"), "5");
    CHECK_STR(client_header(&letter, "idem-status"), "70");
    CHECK_STR(client_header(&letter, "idem-prefix"), "shop/");
    CHECK_STR(client_header(&letter, "idem-hash"), "0123abcd");
    CHECK_STR(client_header(&letter, "idem-queue"), queue);
    CHECK_STR(client_header(&letter, "idem-origin-exchange"), "shop");
    CHECK_STR(client_header(&letter, "idem-origin-routing-key"), queue);
    CHECK_INT(strlen(client_header(&letter, "idem-dead-at")), 20);
    CHECK(client_header(&letter, "CC") == NULL);
    CHECK_INT(letter.properties.delivery_mode, 2);
    CHECK_INT(letter.properties._flags & AMQP_BASIC_EXPIRATION_FLAG, 0);
    CHECK(letter.properties.message_id.len == 4);
    CHECK(letter.body.len == 12 && memcmp(letter.body.bytes, "{\"order\": 1}", 12) == 0);
    amqp_destroy_message(&letter);
}

TEST(a_dead_letter_says_why_and_where_from) {
    client_open(&client, farm.server.port);
    client_declare(&client, "bury", true, NULL);
    client_bind(&client, "shop", "bury", "bury");
    publish_rich("shop", "bury", "nowhere");
    test_consumer_start(&consumer, farm_url(farm.server.port, ""), "bury");
    test_consumer_wait(&consumer, 1);
    CHECK(test_consumer_bury(&consumer, 0, &dead_fields));
    CHECK_INT(client_count(&client, "bury.dead"), 1);
    CHECK(test_consumer_delay(&consumer, 0, 250)); /* the original was still out */
    test_consumer_wait(&consumer, 2);
    letter_check("bury", "bury.dead");
    CHECK(test_consumer_bury(&consumer, 1, &dead_fields)); /* a copy gives the same letter */
    letter_check("bury", "bury.dead");
    test_consumer_ack(&consumer, 1);
    client_wait_count(&client, "bury", 0);
    finish();
}

TEST(dead_letters_go_where_they_were_told_to_as_it_is) {
    struct queue_config config = test_consumer_config(farm_url(farm.server.port, ""), "told");

    start("told", false, "one");
    test_consumer_close(&consumer);
    client_declare(&client, "graves", false, NULL);
    config.dead_letter = "graves";
    test_consumer_open(&consumer, &config);
    queue_broker_amqp.fetch(consumer.link, true);
    test_consumer_wait(&consumer, 1);
    CHECK(test_consumer_bury(&consumer, 0, &(struct queue_dead_fields){.verdict = "key"}));
    client_wait_count(&client, "graves", 1);
    finish();
}

/* Takes the messages out of a queue, and checks them in order. */
static void bodies_check(const char *queue, const char *const *want) {
    amqp_message_t letter;

    for (; *want != NULL; want++) {
        CHECK(client_get(&client, queue, &letter));
        CHECK(letter.body.len == strlen(*want) &&
              memcmp(letter.body.bytes, *want, letter.body.len) == 0);
        amqp_destroy_message(&letter);
    }
}

/* A killed server forgets a young queue, and the age of a queue is not known. */
TEST(a_place_for_dead_letters_that_somebody_else_has_made_is_waited_for_once) {
    int64_t began;

    start("young", false, "one");
    client_declare(&client, "young.dead", true, NULL);
    client_publish(&client, "young", "two");
    client_publish(&client, "young", "three");
    test_consumer_wait(&consumer, 3);
    rabbit_settle_ms = 1500;
    began = idem_loop_now();
    for (size_t i = 0; i < 3; i++)
        queue_broker_amqp.bury(consumer.link, consumer.got[i].message, &dead_fields,
                               test_consumer_told, &consumer);
    test_consumer_wait_told(&consumer, 3);
    CHECK(consumer.taken);
    CHECK(idem_loop_now() - began >= 1500);
    rabbit_settle_ms = 600000; /* the consumer does not wait again */
    CHECK(test_consumer_bury(&consumer, 0, &dead_fields));
    client_wait_count(&client, "young.dead", 4);
    bodies_check("young.dead", (const char *const[]){"one", "two", "three", "one", NULL});
    for (size_t i = 0; i < 3; i++)
        test_consumer_ack(&consumer, i);
    finish();
}

TEST(dead_letters_without_a_place_are_kept_until_there_is_one) {
    struct queue_config config = test_consumer_config(farm_url(farm.server.port, ""), "homeless");

    start("homeless", false, "one");
    test_consumer_close(&consumer);
    config.topology = false;
    test_consumer_open(&consumer, &config);
    queue_broker_amqp.fetch(consumer.link, true);
    test_consumer_wait(&consumer, 1);
    CHECK(!test_consumer_bury(&consumer, 0, &dead_fields));
    CHECK_STR(consumer.why, "the queue homeless.dead: there is no such queue");
    CHECK_INT(client_count(&client, "homeless.dead"), -1);
    CHECK(!test_consumer_delay(&consumer, 0, 250));
    CHECK_HAS(consumer.why, "no queues for delays are declared here");
    client_declare(&client, "homeless.dead", true, NULL);
    CHECK(test_consumer_bury(&consumer, 0, &dead_fields));
    test_consumer_ack(&consumer, 0);
    finish();
}

TEST(dead_letters_that_find_no_room_are_told) {
    static const struct client_arg args[] = {
        {"x-max-length", NULL, 1}, {"x-overflow", "reject-publish", 0}, {NULL, NULL, 0}};

    start("crowded", false, "one");
    client_declare(&client, "crowded.dead", false, args);
    client_publish(&client, "crowded.dead", "first");
    CHECK(!test_consumer_bury(&consumer, 0, &dead_fields));
    CHECK_STR(consumer.why, "the queue crowded.dead: it was refused: is the queue full?");
    CHECK(!test_consumer_bury(&consumer, 0, &dead_fields)); /* the connection stays open */
    test_consumer_ack(&consumer, 0);
    finish();
}

/* Queues of delays. */

TEST(a_queue_of_delays_with_other_arguments_is_not_used) {
    start("foreign", false, "one");
    client_declare(&client, "foreign.idem.retry.250", false, NULL);
    CHECK(!test_consumer_delay(&consumer, 0, 250));
    CHECK_HAS(consumer.why, "it cannot be declared: PRECONDITION_FAILED");
    CHECK(!test_consumer_delay(&consumer, 0, 250)); /* the failure is remembered for a while */
    CHECK_HAS(consumer.why, "it is not used for a while: PRECONDITION_FAILED");
    CHECK(test_consumer_delay(&consumer, 0, 500)); /* other queues are used */
    finish();
}

TEST(a_classic_queue_of_delays_is_used_where_there_is_no_other) {
    static const struct client_arg args[] = {{"x-message-ttl", NULL, 250},
                                             {"x-dead-letter-exchange", "", 0},
                                             {"x-dead-letter-routing-key", "classic", 0},
                                             {"x-overflow", "reject-publish", 0},
                                             {NULL, NULL, 0}};

    start("classic", false, "one");
    client_declare(&client, "classic.idem.retry.250", false, args);
    CHECK(test_consumer_delay(&consumer, 0, 250));
    test_consumer_wait(&consumer, 2);
    CHECK_HAS(consumer.log, "has no quorum queues for delays");
    CHECK(consumer.ready);
    finish();
}

TEST(a_queue_of_delays_that_was_deleted_is_declared_again) {
    start("vanished", true, "one");
    CHECK(test_consumer_delay(&consumer, 0, 250));
    test_consumer_wait(&consumer, 2);
    client_delete(&client, "vanished.idem.retry.250");
    CHECK(test_consumer_delay(&consumer, 1, 250));
    test_consumer_wait(&consumer, 3);
    finish();
}

/* Bodies that are too large for memory. */

TEST(a_body_that_is_too_large_is_buried_whole_and_others_come) {
    size_t len = RABBIT_BODY_MAX + 12345;
    unsigned char *body = malloc(len);
    amqp_message_t letter;

    for (size_t i = 0; i < len; i++)
        body[i] = (unsigned char)(i ^ i >> 10);
    client_open(&client, farm.server.port);
    client_declare(&client, "large", false, NULL);
    client_send(&client, "", "large", NULL, body, len);
    client_publish(&client, "large", "small");
    test_consumer_start(&consumer, farm_url(farm.server.port, ""), "large");
    test_consumer_wait(&consumer, 1);
    CHECK_STR(test_consumer_body(&consumer, 0), "small");
    test_consumer_ack(&consumer, 0);
    test_consumer_wait_line(&consumer, "is too large: it goes to the dead letters");
    test_consumer_wait_line(&consumer, "is among the dead letters now");
    test_consumer_close(&consumer);
    client_wait_count(&client, "large", 0);
    CHECK(client_get(&client, "large.dead", &letter));
    CHECK_STR(client_header(&letter, "idem-verdict"), "refused");
    CHECK(letter.body.len == len && memcmp(letter.body.bytes, body, len) == 0);
    amqp_destroy_message(&letter);
    client_close(&client);
    free(body);
}

static void publish_large(const char *queue) {
    size_t len = RABBIT_BODY_MAX + 1;
    void *body = calloc(1, len);

    client_open(&client, farm.server.port);
    client_declare(&client, queue, false, NULL);
    client_send(&client, "", queue, NULL, body, len);
    client_publish(&client, queue, "small");
    free(body);
}

TEST(a_body_that_is_too_large_and_cannot_be_buried_is_kept_and_tried_again) {
    struct queue_config config = test_consumer_config(farm_url(farm.server.port, ""), "stuck");

    publish_large("stuck");
    config.topology = false;
    test_consumer_open(&consumer, &config);
    queue_broker_amqp.fetch(consumer.link, true);
    test_consumer_wait_line(&consumer,
                            "cannot be buried: the queue stuck.dead: there is no such queue");
    CHECK_INT(consumer.got_n, 1);
    client_declare(&client, "stuck.dead", false, NULL);
    test_consumer_wait_line(&consumer, "is among the dead letters now");
    CHECK_INT(client_count(&client, "stuck.dead"), 1);
    test_consumer_ack(&consumer, 0);
    test_consumer_close(&consumer);
    client_wait_count(&client, "stuck", 0);
    client_close(&client);
}

TEST(a_body_that_is_too_large_for_the_disk_waits_with_the_server_until_there_is_room) {
    char folder[400];

    publish_large("no-room");
    snprintf(folder, sizeof(folder), "%s/later", temp_folder());
    setenv("TMPDIR", folder, 1);
    test_consumer_start(&consumer, farm_url(farm.server.port, ""), "no-room");
    test_consumer_wait_line(&consumer, "there is no room for it");
    test_consumer_wait(&consumer, 1);
    test_consumer_ack(&consumer, 0);
    test_consumer_idle(&consumer, 500); /* sleep: no more messages come */
    CHECK(strstr(strstr(consumer.log, "no room for it") + 1, "no room for it") == NULL);
    test_consumer_close(&consumer);
    client_wait_count(&client, "no-room", 1);
    test_consumer_start(&consumer, farm_url(farm.server.port, ""), "no-room");
    test_consumer_wait_line(&consumer, "there is no room for it");
    CHECK_INT(mkdir(folder, 0700), 0);
    test_consumer_wait_line(&consumer, "is among the dead letters now");
    test_consumer_close(&consumer);
    client_wait_count(&client, "no-room", 0);
    CHECK_INT(client_count(&client, "no-room.dead"), 1);
    client_delete(&client, "no-room.dead");
    client_close(&client);
}

/* The operator's view. */

static struct queue_dead *place_open_by(const char *url, const char *queue) {
    struct queue_dead_config config = {
        .url = url, .queue = queue, .timeout_ms = WAIT_LIMIT_S * 1000};
    struct queue_dead *place;
    struct idem_error err;

    if (queue_dead_broker_amqp.open(&config, &place, &err) == 0)
        return place;
    fprintf(stderr, "# %s\n", err.text);
    exit(1);
}

static struct queue_dead *place_open(const char *queue) {
    return place_open_by(farm_url(farm.server.port, ""), queue);
}

static struct queue_letter place_next(struct queue_dead *place) {
    struct queue_letter letter;
    struct idem_error err;

    CHECK_INT(queue_dead_broker_amqp.next(place, &letter, &err), 0);
    return letter;
}

static void letters_make(const char *queue, int n) {
    amqp_basic_properties_t p = {._flags = AMQP_BASIC_USER_ID_FLAG,
                                 .user_id = amqp_cstring_bytes(SERVER_USER)};
    char body[16];

    client_open(&client, farm.server.port);
    client_declare(&client, queue, true, NULL);
    client_bind(&client, "shop", queue, queue);
    for (int i = 0; i < n; i++) {
        snprintf(body, sizeof(body), "m%d", i);
        client_send(&client, "shop", queue, &p, body, strlen(body));
    }
    client_confirm(&client);
    test_consumer_start(&consumer, farm_url(farm.server.port, ""), queue);
    test_consumer_wait(&consumer, (size_t)n);
    for (int i = 0; i < n; i++)
        CHECK(test_consumer_bury(&consumer, (size_t)i, &dead_fields));
}

TEST(letters_that_were_looked_at_stay_in_their_order) {
    struct queue_dead *place;
    char body[16];

    letters_make("look", 3);
    for (int turn = 0; turn < 3; turn++) {
        place = place_open("look.dead");
        for (int i = 0; i < (turn == 1 ? 2 : 3); i++) {
            struct queue_letter letter = place_next(place);

            snprintf(body, sizeof(body), "m%d", i);
            CHECK(letter.message->body.len == 2 && memcmp(letter.message->body.at, body, 2) == 0);
            CHECK(queue_message_header(letter.message, QUEUE_DEAD_VERDICT) != NULL);
        }
        if (turn != 1)
            CHECK(place_next(place).message == NULL);
        queue_dead_broker_amqp.close(place);
        client_wait_count(&client, "look.dead", 3);
    }
    finish();
}

TEST(a_letter_is_requeued_as_it_was_and_removed) {
    char *before, *after;
    struct queue_dead *place;
    struct queue_letter letter;
    struct idem_error err;

    letters_make("requeue", 3);
    before = variables(1);
    CHECK_HAS(before, "\"user_id\":\"" SERVER_USER "\"");
    for (size_t i = 0; i < 3; i++)
        test_consumer_ack(&consumer, i);
    place = place_open("requeue.dead");
    (void)place_next(place);
    letter = place_next(place);
    CHECK_INT(queue_dead_broker_amqp.requeue(place, NULL, &err), 0);
    CHECK_INT(queue_dead_broker_amqp.remove(place, letter.receipt, &err), 0);
    CHECK_INT(queue_dead_broker_amqp.remove(place, "x", &err), IDEM_E_INVALID);
    queue_dead_broker_amqp.close(place);
    client_wait_count(&client, "requeue.dead", 2);
    test_consumer_wait(&consumer, 4);
    after = variables(3);
    CHECK_STR(after, before);
    place = place_open("requeue.dead"); /* the others, in order */
    CHECK(memcmp(place_next(place).message->body.at, "m0", 2) == 0);
    CHECK(memcmp(place_next(place).message->body.at, "m2", 2) == 0);
    CHECK(place_next(place).message == NULL);
    queue_dead_broker_amqp.close(place);
    free(before);
    free(after);
    finish();
}

/* A consumer would not trust the operator's copy, and the user's name would be lost. */
TEST(a_letter_that_names_a_user_is_not_requeued_by_somebody_else) {
    static struct proxy proxy;
    struct queue_dead *place;
    struct idem_error err;
    char url[200];

    letters_make("vouched", 1);
    proxy_start(&proxy, farm.server.port);
    proxy.from = "OPER"; /* a login under that name */
    proxy.to = SERVER_USER;
    snprintf(url, sizeof(url), "amqp://OPER:%s@127.0.0.1:%d", SERVER_PASSWORD_IN_URL, proxy.port);
    place = place_open_by(url, "vouched.dead");
    (void)place_next(place);
    CHECK_INT(queue_dead_broker_amqp.requeue(place, NULL, &err), IDEM_E_INVALID);
    CHECK_HAS(err.text, "connect as that user");
    queue_dead_broker_amqp.close(place);
    client_wait_count(&client, "vouched.dead", 1);
    CHECK_INT(client_count(&client, "vouched"), 0);
    proxy_stop(&proxy);
    finish();
}

/* Otherwise any sender could choose the key. */
TEST(what_the_server_vouches_for_cannot_be_had_by_a_header) {
    amqp_table_entry_t headers[4] = {{.key = amqp_cstring_bytes("idem-origin-exchange")},
                                     {.key = amqp_cstring_bytes("idem-origin-routing-key")},
                                     {.key = amqp_cstring_bytes("idem-origin-user-id")},
                                     {.key = amqp_cstring_bytes("idem-copy")}};
    amqp_basic_properties_t p = {._flags = AMQP_BASIC_HEADERS_FLAG,
                                 .headers = {.entries = headers}};

    for (size_t i = 0; i < 4; i++) {
        headers[i].value.kind = AMQP_FIELD_KIND_UTF8;
        headers[i].value.value.bytes = amqp_cstring_bytes("forged");
    }
    client_open(&client, farm.server.port);
    client_declare(&client, "forged-way", false, NULL);
    client_bind(&client, "shop", "forged-way", "way");
    for (p.headers.num_entries = 3; p.headers.num_entries <= 4; p.headers.num_entries++)
        client_send(&client, "shop", "way", &p, "x", 1);
    client_confirm(&client);
    test_consumer_start(&consumer, farm_url(farm.server.port, ""), "forged-way");
    test_consumer_wait(&consumer, 2);
    CHECK_STR(test_consumer_property(&consumer, 0, "exchange"), "shop");
    CHECK_STR(test_consumer_property(&consumer, 0, "routing_key"), "way");
    CHECK_STR(test_consumer_property(&consumer, 0, "user_id"), "(none)");
    CHECK(test_consumer_delay(&consumer, 1, 250)); /* a copy of it is no more trusted */
    test_consumer_wait(&consumer, 3);
    CHECK_STR(test_consumer_property(&consumer, 2, "exchange"), "(none)");
    CHECK_STR(test_consumer_property(&consumer, 2, "routing_key"), "(none)");
    CHECK_STR(test_consumer_property(&consumer, 2, "user_id"), "(none)");
    finish();
}

TEST(a_letter_without_a_way_back_stays) {
    struct queue_dead_config config = {.url = farm_url(farm.server.port, ""), .queue = "nowhere"};
    struct queue_dead *place;
    struct idem_error err;

    CHECK_INT(queue_dead_broker_amqp.open(&config, &place, &err), IDEM_E_ABSENT);
    letters_make("stray", 1);
    client_publish(&client, "stray.dead", "somebody else's");
    place = place_open("stray.dead");
    CHECK_INT(queue_dead_broker_amqp.requeue(place, NULL, &err), IDEM_E_INVALID);
    (void)place_next(place);
    CHECK_INT(queue_dead_broker_amqp.requeue(place, "nowhere", &err), IDEM_E_ABSENT);
    (void)place_next(place);
    CHECK_INT(queue_dead_broker_amqp.requeue(place, NULL, &err), IDEM_E_INVALID);
    CHECK_HAS(err.text, "idem-queue");
    CHECK_INT(queue_dead_broker_amqp.remove(place, "77", &err), IDEM_E_REFUSED);
    CHECK_INT(queue_dead_broker_amqp.requeue(place, "stray", &err),
              IDEM_E_REFUSED); /* the end of the list */
    queue_dead_broker_amqp.close(place);
    client_wait_count(&client, "stray.dead", 2);
    finish();
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
