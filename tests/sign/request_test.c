/*
 * Requests that one end signs and the other verifies, in both forms: a change
 * on the way is refused, and a refusal leaves no nonce behind.
 */
#include "rig.h"

static const struct idem_field own[] = {
    {"Content-Type", "application/json"}, {"Idempotency-Key", "k-4711"}, {"Host", "shop.test"}};

static const struct idem_request order = {
    .method = "POST",
    .scheme = "https",
    .authority = "shop.test",
    .target = "/orders?b=2&a=1&a=0",
    .fields = own,
    .fields_n = 3,
    .body = "{\"item\":1}",
    .body_len = 10,
};

static struct idem_signer *signer_for(enum idem_sign_form form) {
    return signer_of(KEYS, (struct idem_sign_rules){.form = form, .headers = "Idempotency-Key"});
}

static struct idem *open_store(void) {
    struct idem_error err = {0};
    struct idem *h = NULL;

    if (idem_open(temp_url("store", "sync=off"), NULL, &h, &err) != 0) {
        fprintf(stderr, "# %s\n", err.text);
        exit(1);
    }
    return h;
}

TEST(what_was_signed_is_good_once) {
    struct idem *h = open_store();

    for (size_t i = 0; i < 2; i++) {
        struct idem_signer *signer = signer_for(forms[i]);
        struct sent sent;

        send_as(&sent, signer, "shop-1", &order);
        CHECK_INT(proof_of(NULL, signer, &sent.request), IDEM_PROOF_GOOD);
        CHECK_INT(proof_of(NULL, signer, &sent.request), IDEM_PROOF_GOOD); /* no store remembers */
        CHECK_INT(proof_of(h, signer, &sent.request), IDEM_PROOF_GOOD);
        CHECK_INT(proof_of(h, signer, &sent.request), IDEM_PROOF_REUSED);
        idem_signature_release(&sent.signature);

        /* the same operation, signed anew: a retry */
        send_as(&sent, signer, "shop-1", &order);
        CHECK_INT(proof_of(h, signer, &sent.request), IDEM_PROOF_GOOD);
        idem_signature_release(&sent.signature);
        idem_signer_free(signer);
    }
    idem_close(h);
}

TEST(ed25519_signs_where_it_has_its_secret) {
    struct idem_signer *signer = signer_for(IDEM_SIGN_RFC9421);
    struct idem_signer *public =
        signer_of("test-key-ed25519 ed25519 base64:JrQLj5P/89iXES9+vFgrIy29clF9CC/oPPsw3c5D0bs=\n",
                  (struct idem_sign_rules){0});
    struct idem_sign_with with = {.key_id = "test-key-ed25519"};
    struct idem_signature none;
    struct idem_error err;
    struct sent sent;

    send_as(&sent, signer, "test-key-ed25519", &order);
    CHECK_INT(proof_of(NULL, public, &sent.request), IDEM_PROOF_GOOD);
    sent.request.method = "PUT";
    CHECK_INT(proof_of(NULL, public, &sent.request), IDEM_PROOF_WRONG);
    CHECK_INT(idem_sign_request(public, &with, &order, &none, &err), IDEM_E_INVALID);
    CHECK_HAS(err.text, "test-key-ed25519");
    idem_signature_release(&sent.signature);
    idem_signer_free(signer);
    idem_signer_free(public);
}

/* Each part in turn. */

static void drop_field(struct sent *sent, const char *name) {
    size_t n = 0;

    for (size_t i = 0; i < sent->request.fields_n; i++)
        if (strcasecmp(sent->fields[i].name, name) != 0)
            sent->fields[n++] = sent->fields[i];
    CHECK_INT(n, sent->request.fields_n - 1);
    sent->request.fields_n = n;
}

static const char *field_of(const struct sent *sent, const char *name) {
    for (size_t i = 0; i < sent->request.fields_n; i++)
        if (strcasecmp(sent->fields[i].name, name) == 0)
            return sent->fields[i].value;
    return NULL;
}

/* The value with `from` replaced by `to`, in one of some buffers that are used in turn. */
static const char *replaced(const char *value, const char *from, const char *to) {
    static char rooms[4][1024];
    static unsigned turn;
    char *room = rooms[turn++ % 4];
    const char *at = strstr(value, from);

    CHECK(at != NULL);
    snprintf(room, sizeof(rooms[0]), "%.*s%s%s", (int)(at - value), value, to, at + strlen(from));
    return room;
}

static void change_method(struct sent *sent) {
    sent->request.method = "PUT";
}
static void change_path(struct sent *sent) {
    sent->request.target = "/orderz?b=2&a=1&a=0";
}
static void change_query(struct sent *sent) {
    sent->request.target = "/orders?b=2&a=1&a=1";
}
static void change_order_of_one_name(struct sent *sent) {
    sent->request.target = "/orders?b=2&a=0&a=1";
}
static void drop_query(struct sent *sent) {
    sent->request.target = "/orders";
}
static void escape_query(struct sent *sent) {
    sent->request.target = "/orders?b=2&a=1&a=%30";
}
static void change_signed_header(struct sent *sent) {
    set_field(sent, "Idempotency-Key", "k-4712");
}
static void change_body(struct sent *sent) {
    sent->request.body = "{\"item\":2}";
}
static void drop_body(struct sent *sent) {
    sent->request.body_len = 0;
}
static void lengthen_body(struct sent *sent) {
    sent->request.body = "{\"item\":1} ";
    sent->request.body_len = 11;
}

static const struct {
    const char *name;
    void (*change)(struct sent *sent);
} changes[] = {
    {"method", change_method},
    {"path", change_path},
    {"query", change_query},
    {"order of one name", change_order_of_one_name},
    {"no query", drop_query},
    {"an escape", escape_query},
    {"signed header", change_signed_header},
    {"body", change_body},
    {"no body", drop_body},
    {"longer body", lengthen_body},
};

TEST(each_part_that_is_changed_is_refused) {
    for (size_t i = 0; i < 2; i++) {
        struct idem_signer *signer = signer_for(forms[i]);

        for (size_t k = 0; k < sizeof(changes) / sizeof(changes[0]); k++) {
            struct sent sent;

            fprintf(stderr, "# %s\n", changes[k].name);
            send_as(&sent, signer, "shop-1", &order);
            changes[k].change(&sent);
            CHECK_INT(proof_of(NULL, signer, &sent.request), IDEM_PROOF_WRONG);
            idem_signature_release(&sent.signature);
        }
        idem_signer_free(signer);
    }
}

/* The parts of the proof itself: timestamp, nonce and key id; another id has the same secret. */
TEST(each_part_of_the_proof_that_is_changed_is_refused) {
    static const char keys[] = "shop-1 hmac-sha256 text:correct horse battery staple\n"
                               "shop-2 hmac-sha256 text:correct horse battery staple\n";
    struct idem_sign_with with = {.key_id = "shop-1", .nonce = "n-1234567"};

    for (size_t i = 0; i < 2; i++) {
        bool classic = forms[i] == IDEM_SIGN_CLASSIC;
        const char *where[] = {classic ? "X-Timestamp" : "Signature-Input",
                               classic ? "X-Nonce" : "Signature-Input",
                               classic ? "X-Key-Id" : "Signature-Input"};
        char before[32], after[32];
        const char *from[] = {before, "n-1234567", "shop-1"},
                   *to[] = {after, "n-1234568", "shop-2"};
        struct idem_signer *signer = signer_of(keys, (struct idem_sign_rules){.form = forms[i]});

        with.time_ms = now_ms() / 1000 * 1000;
        snprintf(before, sizeof(before), "%lld", (long long)(with.time_ms / 1000));
        snprintf(after, sizeof(after), "%lld", (long long)(with.time_ms / 1000 + 1));
        for (size_t k = 0; k < 3; k++) {
            struct sent sent;

            fprintf(stderr, "# %s: %s\n", where[k], from[k]);
            send_with(&sent, signer, &order, &with);
            CHECK_INT(proof_of(NULL, signer, &sent.request), IDEM_PROOF_GOOD);
            set_field(&sent, where[k], replaced(field_of(&sent, where[k]), from[k], to[k]));
            CHECK_INT(proof_of(NULL, signer, &sent.request), IDEM_PROOF_WRONG);
            idem_signature_release(&sent.signature);
        }
        idem_signer_free(signer);
    }
}

TEST(the_order_of_parameters_is_not_signed_in_the_classic_form) {
    struct idem_signer *signer = signer_for(IDEM_SIGN_CLASSIC);
    struct sent sent;

    send_as(&sent, signer, "shop-1", &order);
    sent.request.target = "/orders?a=1&a=0&b=2";
    CHECK_INT(proof_of(NULL, signer, &sent.request), IDEM_PROOF_GOOD);
    idem_signature_release(&sent.signature);
    idem_signer_free(signer);
}

TEST(parts_that_are_missing_or_repeated_are_incomplete) {
    static const char *const classic[] = {"X-Key-Id", "X-Timestamp", "X-Nonce", "X-Sign",
                                          "Idempotency-Key"};
    static const char *const message[] = {"Signature-Input", "Signature", "Content-Digest",
                                          "Idempotency-Key"};

    for (size_t i = 0; i < 2; i++) {
        struct idem_signer *signer = signer_for(forms[i]);
        const char *const *names = forms[i] == IDEM_SIGN_CLASSIC ? classic : message;
        size_t n = forms[i] == IDEM_SIGN_CLASSIC ? 5 : 4;

        for (size_t k = 0; k < n; k++) {
            struct sent sent;

            fprintf(stderr, "# %s\n", names[k]);
            send_as(&sent, signer, "shop-1", &order);
            sent.fields[sent.request.fields_n] =
                (struct idem_field){names[k], field_of(&sent, names[k])};
            sent.request.fields_n++;
            CHECK(proof_of(NULL, signer, &sent.request) >= IDEM_PROOF_INCOMPLETE);
            sent.request.fields_n--;
            drop_field(&sent, names[k]);
            CHECK_INT(proof_of(NULL, signer, &sent.request), IDEM_PROOF_INCOMPLETE);
            idem_signature_release(&sent.signature);
        }
        idem_signer_free(signer);
    }
}

/* A body or a query that is added on the way would have to be signed. */
TEST(what_was_not_there_cannot_be_added) {
    struct idem_request get = {.method = "GET", .authority = "shop.test", .target = "/orders"};
    struct idem_signer *signer = signer_of(KEYS, (struct idem_sign_rules){0});
    struct sent sent;

    send_as(&sent, signer, "shop-1", &get);
    CHECK_INT(proof_of(NULL, signer, &sent.request), IDEM_PROOF_GOOD);
    sent.request.target = "/orders?all=1";
    CHECK_INT(proof_of(NULL, signer, &sent.request), IDEM_PROOF_INCOMPLETE);
    sent.request.target = "/orders";
    sent.request.body = "x";
    sent.request.body_len = 1;
    CHECK_INT(proof_of(NULL, signer, &sent.request), IDEM_PROOF_INCOMPLETE);
    idem_signature_release(&sent.signature);
    idem_signer_free(signer);
}

/* Time. */

static enum idem_proof proof_at(const struct idem_signer *signer, const struct sent *sent,
                                int64_t now) {
    unsigned char sha256[IDEM_HASH_LEN];
    struct idem_http_header *headers;
    struct idem_sign_request request;
    struct idem_sign_checked checked;

    CHECK_INT(idem_request_read(&sent->request, 0, sha256, &headers, &request, NULL), 0);
    CHECK_INT(idem_sign_check(signer, &request, now, &checked, NULL), 0);
    idem_sign_checked_release(&checked);
    free(headers);
    return checked.proof;
}

TEST(a_timestamp_is_current_up_to_the_window_before_and_behind) {
    const int64_t at = 1800000000000;
    struct idem_sign_with with = {.key_id = "shop-1", .time_ms = at};

    for (size_t i = 0; i < 2; i++) {
        struct idem_signer *signer =
            signer_of(KEYS, (struct idem_sign_rules){.form = forms[i], .window_ms = 5000});
        struct sent sent;

        send_with(&sent, signer, &order, &with);
        CHECK_INT(proof_at(signer, &sent, at), IDEM_PROOF_GOOD);
        CHECK_INT(proof_at(signer, &sent, at + 5000), IDEM_PROOF_GOOD);
        CHECK_INT(proof_at(signer, &sent, at + 5001), IDEM_PROOF_STALE);
        CHECK_INT(proof_at(signer, &sent, at - 5000), IDEM_PROOF_GOOD);
        CHECK_INT(proof_at(signer, &sent, at - 5001), IDEM_PROOF_STALE);

        /* and that is decided before the signature is verified */
        sent.request.method = "PUT";
        CHECK_INT(proof_at(signer, &sent, at + 5001), IDEM_PROOF_STALE);
        CHECK_INT(proof_at(signer, &sent, at), IDEM_PROOF_WRONG);
        idem_signature_release(&sent.signature);
        idem_signer_free(signer);
    }
}

/* A request refused for its parts, its time or its signature leaves no nonce behind. */
TEST(what_is_refused_leaves_no_nonce) {
    struct idem *h = open_store();

    for (size_t i = 0; i < 2; i++) {
        struct idem_signer *signer = signer_for(forms[i]);
        struct idem_sign_with with = {.key_id = "shop-1", .nonce = "n-same-every-time"};
        struct idem_stats stats;
        struct sent sent, old;

        with.time_ms = now_ms() - 3600000;
        send_with(&old, signer, &order, &with);
        CHECK_INT(proof_of(h, signer, &old.request), IDEM_PROOF_STALE);
        with.time_ms = 0;
        with.key_id = i == 0 ? "shop-1" : "test-shared-secret"; /* each key has its own nonces */
        send_with(&sent, signer, &order, &with);
        sent.request.method = "PUT";
        CHECK_INT(proof_of(h, signer, &sent.request), IDEM_PROOF_WRONG);
        sent.request.method = "POST";
        sent.request.fields_n--;
        CHECK_INT(proof_of(h, signer, &sent.request), IDEM_PROOF_INCOMPLETE);
        sent.request.fields_n++;
        CHECK_INT(proof_of(h, signer, &sent.request), IDEM_PROOF_GOOD);
        CHECK_INT(proof_of(h, signer, &sent.request), IDEM_PROOF_REUSED);
        CHECK_INT(idem_stats(h, &stats, NULL), 0);
        CHECK_INT(stats.events[IDEM_EVENT_SIGNATURE_STALE], i + 1);
        CHECK_INT(stats.events[IDEM_EVENT_SIGNATURE_WRONG], i + 1);
        CHECK_INT(stats.events[IDEM_EVENT_SIGNATURE_INCOMPLETE], i + 1);
        CHECK_INT(stats.events[IDEM_EVENT_NONCE_REUSED], i + 1);
        idem_signature_release(&old.signature);
        idem_signature_release(&sent.signature);
        idem_signer_free(signer);
    }
    idem_close(h);
}

/* A request that is seen as early as its timestamp allows is valid until the last moment of its
 * window. So a nonce is kept for twice the window, plus a margin for clocks that differ; and at
 * least a day, to which the window may be widened. The number of a sequence must never expire. */
#define HOUR_MS ((int64_t)3600 * 1000)
TEST(a_nonce_is_kept_longer_than_its_signature_is_good) {
    static const int64_t windows[] = {1000, 60000, 12 * HOUR_MS, 12 * HOUR_MS + 1, 24 * HOUR_MS};
    struct idem_sign_parts parts = {
        .key_id = "shop-1", .key_id_len = 6, .nonce = "7", .nonce_len = 1, .number = 7};

    for (size_t i = 0; i < sizeof(windows) / sizeof(windows[0]); i++) {
        struct idem_sign_rules rules = {.window_ms = windows[i]};
        struct idem_signer *signer = signer_of(KEYS, rules);
        struct idem_op op = {0};

        CHECK_INT(idem_nonce_op(signer, &parts, &op, NULL), 0);
        CHECK_INT(op.kind, IDEM_OP_ONCE);
        CHECK_INT(op.in.once.ttl_ms, /* as in sign.md */
                  i < 3 ? 24 * HOUR_MS + 60000 : 2 * windows[i] + 60000);
        idem_signer_free(signer);

        rules.sequence = IDEM_SEQUENCE_INCREASING;
        signer = signer_of(KEYS, rules);
        op = (struct idem_op){0};
        CHECK_INT(idem_nonce_op(signer, &parts, &op, NULL), 0);
        CHECK_INT(op.kind, IDEM_OP_COUNT);
        CHECK(op.in.count.ttl_ms >= (int64_t)100 * 365 * 86400 * 1000);
        idem_signer_free(signer);
    }
}

TEST(a_nonce_is_kept_for_the_longest_window_that_a_host_knows_of) {
    struct idem_sign_parts parts = {
        .key_id = "shop-1", .key_id_len = 6, .nonce = "n", .nonce_len = 1};
    struct idem_signer *signer = signer_of(KEYS, (struct idem_sign_rules){0});
    struct idem_op op = {0};

    signer->longest_ms = 20 * HOUR_MS;
    CHECK_INT(idem_nonce_op(signer, &parts, &op, NULL), 0);
    CHECK_INT(op.in.once.ttl_ms, 40 * HOUR_MS + 60000);
    idem_signer_free(signer);
}

/* A request from a clock that is ahead by `before` is accepted now, and again until its time is
 * `after` ago. If `before` is unknown (0), one value of it is enough to make `after` unsafe. */
TEST(a_window_that_is_widened_beyond_the_life_of_nonces_is_known) {
    int64_t unsafe = 0;

    for (int64_t after = HOUR_MS; after <= 24 * HOUR_MS; after += HOUR_MS / 2) {
        bool always = true;

        for (int64_t before = HOUR_MS / 2; before <= 24 * HOUR_MS; before += HOUR_MS / 2) {
            int64_t earlier = before < 12 * HOUR_MS
                                  ? 12 * HOUR_MS
                                  : before; /* the earlier window may have been this long */
            bool outlives = earlier + after + 60000 <= idem_nonce_life(before);

            CHECK(idem_nonce_outlives(before, after) == outlives);
            CHECK(outlives || before < after); /* otherwise the window does not get wider */
            always = always && outlives;
        }
        CHECK(idem_nonce_outlives(0, after) == always);
        if (!always && unsafe == 0)
            unsafe = after;
    }
    CHECK_INT(unsafe, 12 * HOUR_MS + HOUR_MS / 2);
    CHECK(idem_nonce_outlives(0, 12 * HOUR_MS) && !idem_nonce_outlives(0, 12 * HOUR_MS + 1));
}

/* A sequence. */

static enum idem_proof numbered(struct idem *h, const struct idem_signer *signer,
                                const char *number) {
    struct idem_sign_with with = {.key_id = "shop-1", .nonce = number, .time_ms = IDEM_NONE};
    enum idem_proof proof;
    struct sent sent;

    send_with(&sent, signer, &order, &with);
    proof = proof_of(h, signer, &sent.request);
    idem_signature_release(&sent.signature);
    return proof;
}

TEST(an_increasing_sequence_only_grows) {
    for (size_t i = 0; i < 2; i++) {
        struct idem_signer *signer = signer_of(
            KEYS, (struct idem_sign_rules){.form = forms[i], .sequence = IDEM_SEQUENCE_INCREASING});
        struct idem *h;

        CHECK_INT(idem_open(temp_url(i == 0 ? "a" : "b", "sync=off"), NULL, &h, NULL), 0);
        CHECK_INT(numbered(h, signer, "7"), IDEM_PROOF_GOOD);
        CHECK_INT(numbered(h, signer, "7"), IDEM_PROOF_REUSED);
        CHECK_INT(numbered(h, signer, "6"), IDEM_PROOF_REUSED);
        CHECK_INT(numbered(h, signer, "9"), IDEM_PROOF_GOOD);
        CHECK_INT(numbered(h, signer, "9223372036854775807"), IDEM_PROOF_GOOD);
        CHECK_INT(numbered(h, signer, "10"), IDEM_PROOF_REUSED);
        idem_close(h);
        idem_signer_free(signer);
    }
}

TEST(a_consecutive_sequence_has_no_gaps) {
    struct idem_signer *signer =
        signer_of(KEYS, (struct idem_sign_rules){.sequence = IDEM_SEQUENCE_CONSECUTIVE});
    struct idem_sign_with with = {.key_id = "shop-1", .nonce = "5", .time_ms = IDEM_NONE};
    struct idem_verified verified;
    struct idem *h = open_store();
    struct sent sent;

    CHECK_INT(numbered(h, signer, "2"), IDEM_PROOF_REUSED);
    CHECK_INT(numbered(h, signer, "1"), IDEM_PROOF_GOOD);
    CHECK_INT(numbered(h, signer, "2"), IDEM_PROOF_GOOD);
    CHECK_INT(numbered(h, signer, "2"), IDEM_PROOF_REUSED);
    send_with(&sent, signer, &order, &with);
    CHECK_INT(idem_verify_request(h, signer, &sent.request, &verified, NULL), 0);
    CHECK_INT(verified.proof, IDEM_PROOF_REUSED);
    CHECK_INT(verified.last, 2);
    CHECK_HAS(verified.detail, "2");
    idem_verified_release(&verified);
    idem_signature_release(&sent.signature);
    idem_close(h);
    idem_signer_free(signer);
}

/* A sequence needs no timestamp; one that is sent must be current. */
TEST(a_sequence_needs_no_clock) {
    static const char *const bad[] = {"0", "01", "x", "1.0", "-1", "9223372036854775808"};
    struct idem_sign_with with = {.key_id = "shop-1", .nonce = "3"};
    struct idem_error err;

    for (size_t i = 0; i < 2; i++) {
        struct idem_signer *plain = signer_of(KEYS, (struct idem_sign_rules){.form = forms[i]});
        struct idem_signer *signer = signer_of(
            KEYS, (struct idem_sign_rules){.form = forms[i], .sequence = IDEM_SEQUENCE_INCREASING});
        struct idem_signature none;
        struct sent sent;

        with.time_ms = now_ms() - 3600000;
        with.nonce = "3";
        send_with(&sent, signer, &order, &with);
        CHECK_INT(proof_of(NULL, signer, &sent.request), IDEM_PROOF_STALE);
        idem_signature_release(&sent.signature);
        with.time_ms = IDEM_NONE;
        CHECK_INT(idem_sign_request(plain, &with, &order, &none, &err), IDEM_E_INVALID);
        for (size_t k = 0; k < sizeof(bad) / sizeof(bad[0]); k++) {
            with.nonce = bad[k];
            CHECK_INT(idem_sign_request(signer, &with, &order, &none, &err), IDEM_E_INVALID);
            with.time_ms = 0;
            send_with(&sent, plain, &order, &with);
            CHECK_INT(proof_of(NULL, signer, &sent.request), IDEM_PROOF_INCOMPLETE);
            idem_signature_release(&sent.signature);
        }
        with.nonce = NULL;
        CHECK_INT(idem_sign_request(signer, &with, &order, &none, &err), IDEM_E_INVALID);
        idem_signer_free(plain);
        idem_signer_free(signer);
    }
}

/* Rotation: both secrets of an id verify, the first signs. */
TEST(two_secrets_of_one_id_are_both_good) {
    static const char before[] = "a hmac-sha256 text:the old secret of a\n";
    static const char both[] = "a hmac-sha256 text:the new secret of a\n"
                               "a hmac-sha256 text:the old secret of a\n";
    static const char after[] = "a hmac-sha256 text:the new secret of a\n";

    for (size_t i = 0; i < 2; i++) {
        struct idem_sign_rules rules = {.form = forms[i]};
        struct idem_signer *old = signer_of(before, rules), *two = signer_of(both, rules);
        struct idem_signer *new = signer_of(after, rules);
        struct sent by_old, by_two;

        send_as(&by_old, old, "a", &order);
        send_as(&by_two, two, "a", &order);
        CHECK_INT(proof_of(NULL, two, &by_old.request), IDEM_PROOF_GOOD);
        CHECK_INT(proof_of(NULL, new, &by_old.request), IDEM_PROOF_WRONG);
        CHECK_INT(proof_of(NULL, new, &by_two.request), IDEM_PROOF_GOOD);
        CHECK_INT(proof_of(NULL, old, &by_two.request), IDEM_PROOF_WRONG);
        idem_signature_release(&by_old.signature);
        idem_signature_release(&by_two.signature);
        idem_signer_free(old);
        idem_signer_free(two);
        idem_signer_free(new);
    }
}

/* RFC 9421 with the variations of other senders. */

static enum idem_proof message_proof(const struct idem_signer *signer, const char *input,
                                     const char *signature) {
    struct idem_field fields[] = {{"Signature-Input", input}, {"Signature", signature}};
    struct idem_request get = {.method = "GET",
                               .authority = "shop.test",
                               .target = "/orders",
                               .fields = fields,
                               .fields_n = 2};

    return proof_of(NULL, signer, &get);
}

TEST(signature_inputs_that_cannot_be_taken_are_incomplete) {
#define GOOD ";created=1;keyid=\"shop-1\";nonce=\"n\""
    static const char *const inputs[] = {
        "",
        "sig",
        "sig=\"@method\"",
        "sig=(\"@method\" \"@path\")",
        "sig=(\"@method\" \"@path\");created=1;keyid=\"shop-1\"",
        "sig=(\"@method\" \"@path\");created=1;nonce=\"n\"",
        "sig=(\"@method\" \"@path\");keyid=\"shop-1\";nonce=\"n\"",
        "sig=(\"@method\" \"@path\");created=01;keyid=\"shop-1\";nonce=\"n\"",
        "sig=(\"@method\" \"@path\");created=-1;keyid=\"shop-1\";nonce=\"n\"",
        "sig=(\"@method\" \"@path\");created=1.5;keyid=\"shop-1\";nonce=\"n\"",
        "sig=(\"@method\" \"@path\");created=\"1\";keyid=\"shop-1\";nonce=\"n\"",
        "sig=(\"@method\" \"@path\");created=1;keyid=shop;nonce=\"n\"",
        "sig=(\"@method\" \"@path\");created=1;keyid=\"\";nonce=\"n\"",
        "sig=(\"@method\" \"@path\");created=1;created=2;keyid=\"shop-1\";nonce=\"n\"",
        "sig=(\"@method\" \"@path\")" GOOD ";alg=\"rsa-pss-sha512\"",
        "sig=(\"@method\" \"@path\")" GOOD ";alg=hmac-sha256",
        "sig=(\"@method\")" GOOD,
        "sig=(\"@path\")" GOOD,
        "sig=(\"@method\" \"@path\" \"@path\")" GOOD,
        "sig=(\"@method\" \"@path\" \"date\")" GOOD, /* there is no Date */
        "sig=(\"@method\" \"@path\" \"@status\")" GOOD,
        "sig=(\"@method\" \"@path\" \"@query-param\")" GOOD,
        "sig=(\"@method\" \"@path\" \"@query-param\";name=\"x\")" GOOD,
        "sig=(\"@method\" \"@path\";sf)" GOOD,
        "sig=(\"@method\" \"@path\";req)" GOOD,
        "sig=(\"@method\" \"@path\";bs)" GOOD,
        "sig=(\"@METHOD\" \"@path\" \"@method\")" GOOD,
        "sig=(\"@method\" \"@path\" \"\")" GOOD,
        "sig=(\"@method\" \"@path\" \"@\")" GOOD,
        "sig=(\"@method\" \"@path\" \"a b\")" GOOD,
        "sig=(\"@method\" \"@path\" 1)" GOOD,
        "sig=(\"@method\"\"@path\")" GOOD,
        "sig=(\"@method\" \"@path\"" GOOD,
        "sig=(\"@method\" \"@path\")" GOOD ",",
        "sig=(\"@method\" \"@path\")" GOOD ", sig=(\"@method\" \"@path\")" GOOD,
        "sig=(\"@method\" \"@path\")" GOOD ", b=(\"@method\" \"@path\")" GOOD,
        "other=(\"@method\" \"@path\")" GOOD,
        "Sig=(\"@method\" \"@path\")" GOOD,
    };
    struct idem_signer *signer = signer_of(KEYS, (struct idem_sign_rules){0});

    for (size_t i = 0; i < sizeof(inputs) / sizeof(inputs[0]); i++) {
        fprintf(stderr, "# %s\n", inputs[i]);
        CHECK_INT(message_proof(signer, inputs[i], "sig=:AAAA:"), IDEM_PROOF_INCOMPLETE);
    }
    /* complete, and only too old */
    CHECK_INT(message_proof(signer, "sig=(\"@method\" \"@path\")" GOOD, "sig=:AAAA:"),
              IDEM_PROOF_STALE);
    CHECK_INT(message_proof(signer, "sig=(\"@method\" \"@path\")" GOOD, "sig=AAAA"),
              IDEM_PROOF_INCOMPLETE);
    CHECK_INT(message_proof(signer, "sig=(\"@method\" \"@path\")" GOOD, "sig=:AAAA:, sig=:AAAA:"),
              IDEM_PROOF_INCOMPLETE);
    /* the signature of another key is ignored */
    CHECK_INT(message_proof(signer,
                            "proxy=(\"@method\");created=1;keyid=\"proxy\", "
                            "sig=(\"@method\" \"@path\")" GOOD,
                            "proxy=:AAAA:, sig=:AAAA:"),
              IDEM_PROOF_STALE);
    idem_signer_free(signer);
}

TEST(a_signature_that_has_expired_is_stale) {
    struct idem_signer *signer = signer_of(KEYS, (struct idem_sign_rules){0});
    char input[256];
    int64_t now = now_ms() / 1000;

    snprintf(input, sizeof(input),
             "sig=(\"@method\" \"@path\");created=%lld;expires=%lld;keyid=\"shop-1\";nonce=\"n\"",
             (long long)now, (long long)(now - 1));
    CHECK_INT(message_proof(signer, input, "sig=:AAAA:"), IDEM_PROOF_STALE);
    snprintf(input, sizeof(input),
             "sig=(\"@method\" \"@path\");created=%lld;expires=%lld;keyid=\"shop-1\";nonce=\"n\"",
             (long long)now, (long long)(now + 30));
    CHECK_INT(message_proof(signer, input, "sig=:AAAA:"), IDEM_PROOF_WRONG);
    idem_signer_free(signer);
}

TEST(where_a_digest_must_be_signed_there_is_one_of_nothing_too) {
    static const char *const empty = "sha-256=:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=:";
    struct idem_request get = {.method = "GET", .authority = "shop.test", .target = "/orders"};
    struct idem_signer *signer =
        signer_of(KEYS, (struct idem_sign_rules){.headers = "Content-Digest"});
    struct sent sent;

    send_as(&sent, signer, "shop-1", &get);
    CHECK_STR(field_of(&sent, "Content-Digest"), empty);
    CHECK_INT(proof_of(NULL, signer, &sent.request), IDEM_PROOF_GOOD);
    sent.request.body = "x";
    sent.request.body_len = 1;
    CHECK_INT(proof_of(NULL, signer, &sent.request), IDEM_PROOF_WRONG);
    idem_signature_release(&sent.signature);
    idem_signer_free(signer);
}

/* A key id of hmac-sha256 is verified with that alone, whatever algorithm the sender names. */
TEST(the_algorithm_is_the_key_s) {
    struct idem_signer *signer = signer_for(IDEM_SIGN_RFC9421);
    struct sent sent;

    send_as(&sent, signer, "shop-1", &order);
    set_field(&sent, "Signature-Input",
              replaced(field_of(&sent, "Signature-Input"), "hmac-sha256", "ed25519"));
    CHECK_INT(proof_of(NULL, signer, &sent.request), IDEM_PROOF_WRONG);
    idem_signature_release(&sent.signature);
    idem_signer_free(signer);
}

TEST_MAIN
