/*
 * The guard in the caller's transaction, on each engine, at each isolation level and over each
 * flavour of connection.
 */
#include "db.h"
#include "test.h"

static struct idem_error err;

/* The verdict of the guard, in an open transaction. */
static enum idem_tx_verdict once(struct idem_sql conn, const struct idem_guard *guard,
                                 const struct idem_args *args) {
    struct idem_tx_answer answer;
    int rc = idem_tx_once(conn, guard, args, &answer, &err);

    if (rc != 0)
        fprintf(stderr, "# %s\n", err.text);
    CHECK_INT(rc, 0);
    idem_tx_answer_release(&answer);
    return answer.verdict;
}

static const char *key_of(const struct flavour *f, const char *what) {
    static char keys[4][64];
    static unsigned turn;
    char *key = keys[turn++ % 4];

    snprintf(key, sizeof(keys[0]), "%s-%d", what, f->n);
    return key;
}

TEST(the_first_is_told_so_and_a_duplicate_gets_its_result) {
    struct idem_guard *guard = db_guard("replay:");

    EACH_FLAVOUR(f) {
        struct idem_sql conn = db_open(&f);
        struct idem_args args = db_key(key_of(&f, "k"));
        struct idem_tx_answer answer;

        db_begin(conn, &f);
        CHECK_INT(idem_tx_once(conn, guard, &args, &answer, &err), 0);
        CHECK_INT(answer.verdict, IDEM_TX_FIRST);
        CHECK(!answer.has_result && answer.result == NULL);
        CHECK_INT(strlen(answer.key_hash), 64);
        CHECK_INT(idem_tx_result(conn, guard, &args, 201, "a\0b'\\\"", 6, &err), 0);
        db_commit(conn);

        db_begin(conn, &f);
        CHECK_INT(idem_tx_once(conn, guard, &args, &answer, &err), 0);
        CHECK_INT(answer.verdict, IDEM_TX_DUPLICATE);
        CHECK_INT(answer.status, 201);
        CHECK(answer.has_result && answer.result_len == 6);
        CHECK(memcmp(answer.result, "a\0b'\\\"", 6) == 0);
        idem_tx_answer_release(&answer);
        db_rollback(conn);
        db_close(conn);
    }
    idem_guard_free(guard);
}

TEST(an_empty_result_is_one_and_none_is_none) {
    struct idem_guard *guard = db_guard("empty:");
    struct idem_sql conn = db_open(NULL);
    struct idem_args empty = db_key("empty"), none = db_key("none"), unsaid = db_key("unsaid");
    struct idem_tx_answer answer;

    db_begin(conn, NULL);
    CHECK_INT(once(conn, guard, &empty), IDEM_TX_FIRST);
    CHECK_INT(idem_tx_result(conn, guard, &empty, -7, "", 0, &err), 0);
    CHECK_INT(once(conn, guard, &none), IDEM_TX_FIRST);
    CHECK_INT(idem_tx_result(conn, guard, &none, 5, NULL, 0, &err), 0);
    CHECK_INT(once(conn, guard, &unsaid), IDEM_TX_FIRST);
    CHECK_INT(idem_tx_once(conn, guard, &empty, &answer, &err), 0);
    CHECK(answer.verdict == IDEM_TX_DUPLICATE && answer.has_result && answer.result_len == 0);
    CHECK_INT(answer.status, -7);
    idem_tx_answer_release(&answer);
    CHECK_INT(idem_tx_once(conn, guard, &none, &answer, &err), 0);
    CHECK(answer.verdict == IDEM_TX_DUPLICATE && !answer.has_result && answer.status == 5);
    CHECK_INT(idem_tx_once(conn, guard, &unsaid, &answer, &err), 0);
    CHECK(answer.verdict == IDEM_TX_DUPLICATE && !answer.has_result && answer.status == 0);
    db_commit(conn);
    db_close(conn);
    idem_guard_free(guard);
}

TEST(another_fingerprint_is_a_mismatch_and_learns_nothing) {
    struct idem_guard *guard = db_guard("print:");

    EACH_FLAVOUR(f) {
        struct idem_sql conn = db_open(&f);
        struct idem_args args = db_key(key_of(&f, "k"));
        struct idem_tx_answer answer;

        args.fingerprint = "amount=5";
        args.fingerprint_len = 8;
        db_begin(conn, &f);
        CHECK_INT(once(conn, guard, &args), IDEM_TX_FIRST);
        CHECK_INT(idem_tx_result(conn, guard, &args, 200, "r", 1, &err), 0);
        db_commit(conn);
        db_begin(conn, &f);
        CHECK_INT(once(conn, guard, &args), IDEM_TX_DUPLICATE);
        args.fingerprint = "amount=6";
        CHECK_INT(idem_tx_once(conn, guard, &args, &answer, &err), 0);
        CHECK_INT(answer.verdict, IDEM_TX_MISMATCH);
        CHECK(!answer.has_result && answer.result == NULL && answer.status == 0);
        /* Without a fingerprint the guard compares nothing. */
        args.fingerprint = NULL;
        args.fingerprint_len = 0;
        CHECK_INT(once(conn, guard, &args), IDEM_TX_DUPLICATE);
        db_rollback(conn);
        db_close(conn);
    }
    idem_guard_free(guard);
}

TEST(what_the_caller_rolls_back_was_never_there) {
    struct idem_guard *guard = db_guard("undo:");

    EACH_FLAVOUR(f) {
        struct idem_sql conn = db_open(&f);
        struct idem_args args = db_key(key_of(&f, "k"));

        for (int i = 0; i < 2; i++) {
            db_begin(conn, &f);
            CHECK_INT(once(conn, guard, &args), IDEM_TX_FIRST);
            CHECK_INT(idem_tx_result(conn, guard, &args, 1, "r", 1, &err), 0);
            db_rollback(conn);
        }
        db_close(conn);
    }
    idem_guard_free(guard);
}

TEST(keys_are_bytes_and_scopes_and_prefixes_part_them) {
    static const char *const keys[] = {"straße",
                                       "STRASSE",
                                       "strasse",
                                       "Straße",
                                       "strasse ",
                                       " strasse",
                                       "stra\303\237e\t",
                                       "resume",
                                       "re\xcc\x81sume",
                                       "r\xc3\xa9sume",
                                       "\\",
                                       "'",
                                       "\"",
                                       "''",
                                       "\xff\xfe",
                                       "0",
                                       "00",
                                       "0.0",
                                       "%",
                                       "_"};
    struct idem_guard *guard = db_guard("bytes:"), *other = db_guard("Bytes:");

    EACH_FLAVOUR(f) {
        struct idem_sql conn = db_open(&f);
        struct idem_args args, scoped;

        db_begin(conn, &f);
        db_do(conn, "DELETE FROM idem_tx");
        for (int round = 0; round < 2; round++) {
            enum idem_tx_verdict want = round == 0 ? IDEM_TX_FIRST : IDEM_TX_DUPLICATE;

            for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
                args = scoped = db_key(keys[i]);
                CHECK_INT(once(conn, guard, &args), want);
                scoped.scope = "A";
                scoped.scope_len = 1;
                CHECK_INT(once(conn, guard, &scoped), want);
                scoped.scope = "a";
                CHECK_INT(once(conn, guard, &scoped), want);
                CHECK_INT(once(conn, other, &args), want);
            }
            /* A key with a NUL byte in it, and one that ends before that byte. */
            args = (struct idem_args){.key = "a\0b", .key_len = 3};
            CHECK_INT(once(conn, guard, &args), want);
            args.key_len = 2;
            CHECK_INT(once(conn, guard, &args), want);
            args.key_len = 1;
            CHECK_INT(once(conn, guard, &args), want);
        }
        db_rollback(conn);
        db_close(conn);
    }
    idem_guard_free(other);
    idem_guard_free(guard);
}

TEST(keys_of_4_kib_differ_in_their_last_byte) {
    struct idem_guard *guard = db_guard("long:");
    struct idem_sql conn = db_open(NULL);
    static unsigned char key[IDEM_KEY_MAX + 1];
    struct idem_args args = {.key = key, .key_len = IDEM_KEY_MAX};
    struct idem_tx_answer answer = {.status = 77};

    for (size_t i = 0; i < sizeof(key); i++)
        key[i] = (unsigned char)(i * 7);
    db_begin(conn, NULL);
    CHECK_INT(once(conn, guard, &args), IDEM_TX_FIRST);
    key[IDEM_KEY_MAX - 1] ^= 1;
    CHECK_INT(once(conn, guard, &args), IDEM_TX_FIRST);
    CHECK_INT(once(conn, guard, &args), IDEM_TX_DUPLICATE);
    args.key_len = IDEM_KEY_MAX + 1;
    CHECK_INT(idem_tx_once(conn, guard, &args, &answer, &err), IDEM_E_INVALID);
    CHECK_INT(answer.status, 77);
    /* The key was refused before any statement was sent, so the transaction can continue. */
    args.key_len = IDEM_KEY_MAX;
    CHECK_INT(once(conn, guard, &args), IDEM_TX_DUPLICATE);
    db_commit(conn);
    db_close(conn);
    idem_guard_free(guard);
}

TEST(a_result_of_a_megabyte_comes_back_byte_for_byte) {
    struct idem_guard *guard = db_guard("big:");
    struct idem_sql conn = db_open(NULL);
    struct idem_args args = db_key("k"), more = db_key("more");
    struct idem_tx_answer answer;
    size_t len = 1 << 20;
    unsigned char *bytes = malloc(len + 1);

    CHECK(bytes != NULL);
    for (size_t i = 0; i <= len; i++)
        bytes[i] = (unsigned char)(i * 31 + (i >> 8));
    db_begin(conn, NULL);
    CHECK_INT(once(conn, guard, &args), IDEM_TX_FIRST);
    CHECK_INT(idem_tx_result(conn, guard, &args, 0, bytes, len, &err), 0);
    /* A result one byte over result_max is not kept; the status is. */
    CHECK_INT(once(conn, guard, &more), IDEM_TX_FIRST);
    CHECK_INT(idem_tx_result(conn, guard, &more, 9, bytes, len + 1, &err), 0);
    CHECK_INT(idem_tx_once(conn, guard, &args, &answer, &err), 0);
    CHECK(answer.result_len == len && memcmp(answer.result, bytes, len) == 0);
    idem_tx_answer_release(&answer);
    CHECK_INT(idem_tx_once(conn, guard, &more, &answer, &err), 0);
    CHECK(answer.verdict == IDEM_TX_DUPLICATE && !answer.has_result && answer.status == 9);
    db_commit(conn);
    db_close(conn);
    free(bytes);
    idem_guard_free(guard);
}

TEST(under_reject_no_result_is_kept_and_none_given_out) {
    const struct idem_policy reject = {
        .prefix = "mode:", .scope = IDEM_SCOPE_NONE, .mode = IDEM_MODE_REJECT};
    struct idem_guard *guard = db_guard("mode:");
    struct idem_sql conn = db_open(NULL);
    struct idem_args kept = db_key("kept"), args = db_key("args");
    struct idem_tx_answer answer;

    db_begin(conn, NULL);
    CHECK_INT(once(conn, guard, &kept), IDEM_TX_FIRST);
    CHECK_INT(idem_tx_result(conn, guard, &kept, 1, "r", 1, &err), 0);
    kept.with = args.with = &reject;
    CHECK_INT(idem_tx_once(conn, guard, &kept, &answer, &err), 0);
    CHECK(answer.verdict == IDEM_TX_DUPLICATE && answer.status == 1 && !answer.has_result);
    CHECK_INT(once(conn, guard, &args), IDEM_TX_FIRST);
    CHECK_INT(idem_tx_result(conn, guard, &args, 2, "r", 1, &err), 0);
    args.with = NULL;
    CHECK_INT(idem_tx_once(conn, guard, &args, &answer, &err), 0);
    CHECK(answer.verdict == IDEM_TX_DUPLICATE && answer.status == 2 && !answer.has_result);
    db_commit(conn);
    db_close(conn);
    idem_guard_free(guard);
}

/* Gives every row the greatest possible age. */
static void expire(struct idem_sql conn) {
    db_do(conn, db_kind == IDEM_SQL_SQLITE ? "UPDATE idem_tx SET expires = 1"
                                           : "UPDATE idem_tx SET expires = '2001-01-01 00:00:00'");
}

TEST(an_expired_row_counts_as_absent) {
    struct idem_guard *guard = db_guard("old:");

    EACH_FLAVOUR(f) {
        struct idem_sql conn = db_open(&f);
        struct idem_args args = db_key(key_of(&f, "k"));
        struct idem_tx_answer answer;

        args.fingerprint = "1";
        args.fingerprint_len = 1;
        db_begin(conn, &f);
        CHECK_INT(once(conn, guard, &args), IDEM_TX_FIRST);
        CHECK_INT(idem_tx_result(conn, guard, &args, 200, "old", 3, &err), 0);
        db_commit(conn);
        expire(conn);
        db_begin(conn, &f);
        args.fingerprint = "2";
        CHECK_INT(once(conn, guard, &args), IDEM_TX_FIRST);
        CHECK_INT(idem_tx_once(conn, guard, &args, &answer, &err), 0);
        CHECK(answer.verdict == IDEM_TX_DUPLICATE && !answer.has_result && answer.status == 0);
        CHECK_INT(idem_tx_result(conn, guard, &args, 201, "new", 3, &err), 0);
        db_rollback(conn);
        /* After the rollback the row is the old one again, which has expired. */
        db_begin(conn, &f);
        CHECK_INT(once(conn, guard, &args), IDEM_TX_FIRST);
        db_commit(conn);
        db_begin(conn, &f);
        CHECK_INT(once(conn, guard, &args), IDEM_TX_DUPLICATE);
        db_rollback(conn);
        db_close(conn);
    }
    idem_guard_free(guard);
}

TEST(a_result_is_said_once_and_by_who_was_first) {
    struct idem_guard *guard = db_guard("result:");
    struct idem_sql conn = db_open(NULL);
    struct idem_args args = db_key("k"), absent = db_key("absent");

    db_begin(conn, NULL);
    CHECK_INT(idem_tx_result(conn, guard, &absent, 1, "r", 1, &err), IDEM_E_INVALID);
    CHECK_HAS(err.text, "IDEM_TX_FIRST");
    CHECK_INT(once(conn, guard, &args), IDEM_TX_FIRST);
    CHECK_INT(idem_tx_result(conn, guard, &args, 1, NULL, 1, &err), IDEM_E_INVALID);
    CHECK_INT(idem_tx_result(conn, guard, &args, 0, "r", 1, &err), 0);
    CHECK_INT(idem_tx_result(conn, guard, &args, 0, "other", 5, &err), IDEM_E_INVALID);
    db_commit(conn);
    db_close(conn);
    idem_guard_free(guard);
}

TEST(a_row_without_its_fingerprint_is_told) {
    struct idem_guard *guard = db_guard("damaged:");
    struct idem_sql conn = db_open(NULL);
    struct idem_args args = db_key("k");
    struct idem_tx_answer answer;

    db_begin(conn, NULL);
    CHECK_INT(once(conn, guard, &args), IDEM_TX_FIRST);
    db_do(conn, "UPDATE idem_tx SET definition = 1");
    CHECK_INT(idem_tx_once(conn, guard, &args, &answer, &err), IDEM_E_CORRUPT);
    db_rollback(conn);
    db_close(conn);
    idem_guard_free(guard);
}

TEST(what_makes_no_sense_here_is_refused) {
    const struct idem_policy lock = {.mode = IDEM_MODE_LOCK}, token = {.key_kind = IDEM_KEY_TOKEN};
    struct idem_guard *guard = db_guard("sense:");
    struct idem_sql conn = db_open(NULL), none = {0}, far = {.kind = 9};
    struct idem_args args = db_key("k");
    struct idem_tx_answer answer = {.status = 77};

    CHECK_INT(idem_tx_once(conn, guard, &args, &answer, &err), IDEM_E_INVALID);
    CHECK_HAS(err.text, "no transaction is open");
    db_begin(conn, NULL);
    args.with = &lock;
    CHECK_INT(idem_tx_once(conn, guard, &args, &answer, &err), IDEM_E_INVALID);
    CHECK_HAS(err.text, "mode=lock");
    args.with = &token;
    CHECK_INT(idem_tx_once(conn, guard, &args, &answer, &err), IDEM_E_INVALID);
    CHECK_HAS(err.text, "token");
    args.with = NULL;
    CHECK_INT(idem_tx_once(none, guard, &args, &answer, &err), IDEM_E_INVALID);
    CHECK_INT(idem_tx_once(far, guard, &args, &answer, &err), IDEM_E_INVALID);
    CHECK_INT(idem_tx_once(idem_sql_pg(NULL), guard, &args, &answer, &err), IDEM_E_INVALID);
    CHECK_HAS(err.text, "idem_sql_pg()");
    CHECK_INT(idem_tx_once(conn, NULL, &args, &answer, &err), IDEM_E_INVALID);
    CHECK_INT(idem_tx_once(conn, guard, NULL, &answer, &err), IDEM_E_INVALID);
    CHECK_INT(idem_tx_once(conn, guard, &args, NULL, &err), IDEM_E_INVALID);
    CHECK_INT(idem_tx_once(conn, guard, &args, &answer, NULL), 0);
    db_rollback(conn);
    db_close(conn);
    idem_guard_free(guard);
}

TEST(no_error_shows_a_key) {
    struct idem_guard *guard = db_guard("secret:");
    struct idem_sql conn = db_open(NULL);
    struct idem_args args = db_key("hush-hush");
    struct idem_tx_answer answer;

    db_do(conn, db_kind == IDEM_SQL_SQLITE ? "ALTER TABLE idem_tx RENAME COLUMN expires TO x"
                                           : "ALTER TABLE idem_tx RENAME TO idem_ty");
    db_begin(conn, NULL);
    CHECK_INT(idem_tx_once(conn, guard, &args, &answer, &err), IDEM_E_REFUSED);
    CHECK(strstr(err.text, "hush") == NULL);
    if (db_kind != IDEM_SQL_SQLITE)
        CHECK_HAS(err.text, "idem migrate");
    db_rollback(conn);
    db_do(conn, db_kind == IDEM_SQL_SQLITE ? "ALTER TABLE idem_tx RENAME COLUMN x TO expires"
                                           : "ALTER TABLE idem_ty RENAME TO idem_tx");
    db_close(conn);
    idem_guard_free(guard);
}

DB_MAIN
