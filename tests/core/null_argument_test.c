/*
 * A NULL where a pointer is required is the caller's mistake: IDEM_E_INVALID, by its name, and
 * nothing else happens.
 */
#include <sys/stat.h>

#include "calls.h"

static struct idem_error err;

/* A call with a NULL argument returns INVALID, and a text that names the argument. */
static void refused(int rc, const char *what) {
    char part[64];

    CHECK_INT(rc, IDEM_E_INVALID);
    CHECK_INT(err.code, IDEM_E_INVALID);
    snprintf(part, sizeof(part), "): %s is NULL", what);
    CHECK_HAS(err.text, part);
    memset(&err, 0, sizeof(err));
}

static int watch(void *data, int fd, int events) {
    (void)data;
    (void)fd;
    (void)events;
    return 0;
}

static void timer(void *data, int64_t ms) {
    (void)data;
    (void)ms;
}

TEST(settings_and_stores_are_asked_for_by_name) {
    const struct idem_host host = {.watch = watch, .timer = timer};
    const struct idem_host no_watch = {.timer = timer}, no_timer = {.watch = watch};
    struct idem_settings *settings = NULL;
    const char *url = temp_url("store", NULL);
    struct idem *h = NULL;

    refused(idem_settings_load(NULL, &settings, &err), "path");
    refused(idem_settings_load("/dev/null", NULL, &err), "ret");
    refused(idem_settings_parse("t", NULL, 1, &settings, &err), "text");
    refused(idem_settings_parse("t", "", 0, NULL, &err), "ret");
    refused(idem_open(NULL, NULL, &h, &err), "url");
    refused(idem_open(url, NULL, NULL, &err), "ret");
    refused(idem_open_on(NULL, NULL, &host, &h, &err), "url");
    refused(idem_open_on(url, NULL, NULL, &h, &err), "host");
    refused(idem_open_on(url, NULL, &no_watch, &h, &err), "host->watch");
    refused(idem_open_on(url, NULL, &no_timer, &h, &err), "host->timer");
    refused(idem_open_on(url, NULL, &host, NULL, &err), "ret");
    CHECK(settings == NULL && h == NULL);
    CHECK_INT(idem_open(NULL, NULL, &h, NULL), IDEM_E_INVALID);
    CHECK_INT(access(url + strlen("lmdb:"), F_OK), -1);
    CHECK_INT(idem_settings_parse(NULL, NULL, 0, &settings, &err), 0);
    idem_settings_free(settings);
}

static void on_answer(struct idem_claim *claim, int rc, const struct idem_answer *answer,
                      const struct idem_error *error, void *data) {
    (void)claim;
    (void)rc;
    (void)answer;
    (void)error;
    (void)data;
}

TEST(a_call_is_told_what_it_left_out) {
    struct idem *h = open_store("sync=off");
    struct idem_guard *guard = guard_of(NULL, (struct idem_policy){0}), *none = NULL;
    const struct idem_policy policy = {.prefix = "t:", .scope = "none"};
    struct idem_args args = {.key = "k", .key_len = 1};
    struct idem_claim *claim = NULL;
    struct work work = {0};
    struct idem_outcome out = {.attempt = 77};

    refused(idem_guard_new(h, NULL, &none, &err), "policy");
    refused(idem_guard_new(h, &policy, NULL, &err), "ret");
    refused(idem_call(NULL, guard, &args, do_work, &work, &out, &err), "h");
    refused(idem_call(h, NULL, &args, do_work, &work, &out, &err), "guard");
    refused(idem_call(h, guard, NULL, do_work, &work, &out, &err), "args");
    refused(idem_call(h, guard, &args, NULL, &work, &out, &err), "fn");
    refused(idem_call(h, guard, &args, do_work, &work, NULL, &err), "ret");
    refused(idem_claim_new(NULL, guard, &args, on_answer, NULL, &claim, &err), "h");
    refused(idem_claim_new(h, NULL, &args, on_answer, NULL, &claim, &err), "guard");
    refused(idem_claim_new(h, guard, NULL, on_answer, NULL, &claim, &err), "args");
    refused(idem_claim_new(h, guard, &args, NULL, NULL, &claim, &err), "cb");
    refused(idem_claim_new(h, guard, &args, on_answer, NULL, NULL, &err), "ret");
    CHECK_INT(idem_claim_done(NULL, 0, NULL, 0, NULL, NULL), IDEM_E_INVALID);
    CHECK_INT(idem_claim_fail(NULL, 0, NULL, NULL, 0, false, NULL, NULL), IDEM_E_INVALID);
    CHECK_INT(idem_claim_release(NULL, NULL, NULL), IDEM_E_INVALID);
    CHECK_INT(idem_claim_unknown(NULL, NULL, NULL, NULL), IDEM_E_INVALID);
    CHECK_INT(idem_claim_renew(NULL, NULL, NULL), IDEM_E_INVALID);
    CHECK_INT(work.runs, 0);
    CHECK_INT(out.attempt, 77);
    CHECK(claim == NULL && none == NULL);
    idem_guard_free(guard);
    idem_close(h);
}

/* Above all a scope: if a caller's name was lost, its key must not become one of the scope that all
   share. */
TEST(a_length_without_bytes_is_not_taken_for_nothing) {
    struct idem *h = open_store("sync=off");
    struct idem_guard *guard = guard_of(h, (struct idem_policy){0});
    const struct {
        struct idem_args args;
        const char *text;
    } wrong[] = {
        {{.key_len = 1}, "idem_args.key is NULL"},
        {{.key = "k", .key_len = 1, .scope_len = 4}, "idem_args.scope is NULL"},
        {{.key = "k", .key_len = 1, .fingerprint_len = 4}, "idem_args.fingerprint is NULL"},
        {{.key = "k", .key_len = 1, .bind_len = 4}, "idem_args.bind is NULL"},
    };
    struct idem_name name = {.prefix = "t:", .key = "k", .key_len = 1, .scope_len = 4};
    struct work work = {0};
    struct idem_outcome out;
    struct idem_entry entry;

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        CHECK_INT(idem_call(h, guard, &wrong[i].args, do_work, &work, &out, &err), IDEM_E_INVALID);
        CHECK_HAS(err.text, wrong[i].text);
    }
    CHECK_INT(work.runs, 0);
    CHECK_INT(idem_lookup(h, &name, &entry, &err), IDEM_E_INVALID);
    CHECK_HAS(err.text, "idem_name.scope is NULL");
    idem_guard_free(guard);
    idem_close(h);
}

static enum idem_result set_nothing(struct idem_run *run, void *data) {
    (void)data;
    CHECK_INT(idem_run_set_result(run, "kept", 4), 0);
    CHECK_INT(idem_run_set_result(run, NULL, 5), IDEM_E_INVALID);
    idem_run_set_reason(run, NULL);
    return IDEM_RESULT_DONE;
}

TEST(a_result_of_no_bytes_leaves_the_one_before) {
    struct idem *h = open_store("sync=off");
    struct idem_guard *guard = guard_of(h, (struct idem_policy){0});
    struct idem_args args = {.key = "k", .key_len = 1};
    struct idem_outcome out;

    CHECK_INT(idem_run_set_result(NULL, "", 0), IDEM_E_INVALID);
    CHECK_INT(idem_call(h, guard, &args, set_nothing, NULL, &out, &err), 0);
    CHECK(out.result_len == 4 && memcmp(out.result, "kept", 4) == 0);
    idem_outcome_release(&out);
    idem_guard_free(guard);
    idem_close(h);
}

TEST(an_operator_is_told_what_was_left_out) {
    struct idem *h = open_store("sync=off");
    struct idem_name name = {.prefix = "t:", .key = "k", .key_len = 1}, no_prefix = {.key = "k"};
    struct idem_settlement how = {.to = IDEM_DONE};
    struct idem_cursor cursor = {0};
    struct idem_entry entry;
    struct idem_stats stats;
    int64_t ms;
    size_t n;

    refused(idem_lookup(NULL, &name, &entry, &err), "h");
    refused(idem_lookup(h, NULL, &entry, &err), "name");
    refused(idem_lookup(h, &name, NULL, &err), "ret");
    CHECK_INT(idem_lookup(h, &no_prefix, &entry, &err), IDEM_E_INVALID);
    refused(idem_list(NULL, NULL, &cursor, &entry, 1, &n, &err), "h");
    refused(idem_list(h, NULL, NULL, &entry, 1, &n, &err), "cursor");
    refused(idem_list(h, NULL, &cursor, NULL, 1, &n, &err), "ret");
    refused(idem_list(h, NULL, &cursor, &entry, 1, NULL, &err), "ret_n");
    refused(idem_settle(NULL, &name, &how, &err), "h");
    refused(idem_settle(h, NULL, &how, &err), "name");
    refused(idem_settle(h, &name, NULL, &err), "how");
    refused(idem_settle_all(NULL, NULL, &how, NULL, NULL, &n, &err), "h");
    refused(idem_settle_all(h, NULL, NULL, NULL, NULL, &n, &err), "how");
    refused(idem_settle_all(h, NULL, &how, NULL, NULL, NULL, &err), "ret_n");
    refused(idem_forget(NULL, &name, false, &err), "h");
    refused(idem_forget(h, NULL, false, &err), "name");
    refused(idem_stats(NULL, &stats, &err), "h");
    refused(idem_stats(h, NULL, &err), "ret");
    refused(idem_time(NULL, &ms, &err), "h");
    refused(idem_time(h, NULL, &err), "ret_ms");
    refused(idem_date(h, NULL, &err), "ret_ms");
    CHECK_INT(idem_settle_all(h, NULL, &how, NULL, NULL, &n, &err), 0);
    idem_close(h);
}

TEST(who_signs_or_verifies_is_told_what_was_left_out) {
    const struct idem_sign_with with = {.key_id = "a"}, nobody = {0};
    const struct idem_request request = {.method = "GET", .target = "/"};
    const struct idem_field nameless = {.value = "x"}, worthless = {.name = "X"};
    struct idem_request wrong[] = {
        {.target = "/"},
        {.method = "GET"},
        {.method = "GET", .target = "/", .body_len = 1},
        {.method = "GET", .target = "/", .fields_n = 1},
        {.method = "GET", .target = "/", .fields = &nameless, .fields_n = 1},
        {.method = "GET", .target = "/", .fields = &worthless, .fields_n = 1},
    };
    struct idem_sign_rules rules = {0};
    struct idem_verified verified = {.last = 77};
    struct idem_signature signature = {.fields_n = 77};
    struct idem_signer *signer = NULL;
    char path[256];
    FILE *file;

    refused(idem_signer_new(NULL, &signer, &err), "rules");
    refused(idem_signer_new(&rules, NULL, &err), "ret");
    CHECK_INT(idem_signer_new(&rules, &signer, &err), IDEM_E_INVALID);
    CHECK_HAS(err.text, "secret_file is missing");
    CHECK(signer == NULL);

    snprintf(path, sizeof(path), "%s/keys", temp_folder());
    umask(077);
    file = fopen(path, "w");
    CHECK(file != NULL);
    fputs("a hmac-sha256 text:a secret of some length\n", file);
    fclose(file);
    rules.secret_file = path;
    CHECK_INT(idem_signer_new(&rules, &signer, &err), 0);

    refused(idem_sign_request(NULL, &with, &request, &signature, &err), "signer");
    refused(idem_sign_request(signer, NULL, &request, &signature, &err), "with");
    refused(idem_sign_request(signer, &with, NULL, &signature, &err), "request");
    refused(idem_sign_request(signer, &with, &request, NULL, &err), "ret");
    CHECK_INT(idem_sign_request(signer, &nobody, &request, &signature, &err), IDEM_E_INVALID);
    CHECK_HAS(err.text, "key_id");
    refused(idem_verify_request(NULL, NULL, &request, &verified, &err), "signer");
    refused(idem_verify_request(NULL, signer, NULL, &verified, &err), "request");
    refused(idem_verify_request(NULL, signer, &request, NULL, &err), "ret");
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        CHECK_INT(idem_sign_request(signer, &with, &wrong[i], &signature, &err), IDEM_E_INVALID);
        CHECK_INT(idem_verify_request(NULL, signer, &wrong[i], &verified, &err), IDEM_E_INVALID);
        CHECK_INT(idem_verify_request(NULL, signer, &wrong[i], &verified, NULL), IDEM_E_INVALID);
    }
    CHECK_INT(signature.fields_n, 77);
    CHECK_INT(verified.last, 77);
    idem_signer_free(signer);
}

TEST(every_destructor_takes_nothing) {
    idem_settings_free(NULL);
    idem_close(NULL);
    idem_guard_free(NULL);
    idem_outcome_release(NULL);
    idem_claim_free(NULL);
    idem_entry_release(NULL);
    idem_signer_free(NULL);
    idem_signature_release(NULL);
    idem_verified_release(NULL);
}

TEST_MAIN
