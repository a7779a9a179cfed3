/*
 * Every allocation fails in its turn: the answer is IDEM_E_NOMEM, nothing leaks, and what the
 * caller had is untouched. The linker puts the functions below before malloc and its kin.
 */
#include <fcntl.h>

#include "core/policy.h"
#include "core/settings.h"
#include "temp.h"
#include "test.h"

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *old, size_t size);
void __real_free(void *old);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *old, size_t size);
void __wrap_free(void *old);

static long live, until_failure = -1;

static void *counted(void *fresh) {
    live += fresh != NULL;
    return fresh;
}

/* False when it is this allocation's turn to fail. */
static bool allowed(void) {
    if (until_failure < 0)
        return true;
    return until_failure-- > 0;
}

void *__wrap_malloc(size_t size) {
    return allowed() ? counted(__real_malloc(size)) : NULL;
}

void *__wrap_calloc(size_t n, size_t size) {
    return allowed() ? counted(__real_calloc(n, size)) : NULL;
}

void *__wrap_realloc(void *old, size_t size) {
    void *fresh = allowed() ? __real_realloc(old, size) : NULL;

    return old == NULL ? counted(fresh) : fresh;
}

void __wrap_free(void *old) {
    live -= old != NULL;
    __real_free(old);
}

/* Runs `once` with each of its allocations failing; it returns the code it got. */
static void fail_each(int (*once)(struct idem_error *err), long at_least) {
    struct idem_error err;
    long begun = live, turn = 0;
    int rc;

    for (;; turn++) {
        memset(&err, 0, sizeof(err));
        until_failure = turn;
        rc = once(&err);
        /* Not reached any more: it went through. */
        if (until_failure >= 0)
            break;
        CHECK_INT(rc, IDEM_E_NOMEM);
        CHECK_INT(err.code, IDEM_E_NOMEM);
        CHECK_INT(live, begun);
        until_failure = turn;
        CHECK_INT(once(NULL), IDEM_E_NOMEM);
        CHECK_INT(live, begun);
    }
    until_failure = -1;
    CHECK_INT(rc, 0);
    CHECK_INT(live, begun);
    CHECK(turn >= at_least);
}

static const char conf[] = "[defaults]\nscope=none\nmessage=\"m\"\n[policy a]\nprefix=x\nttl=5s\n"
                           "[policy b]\nprefix=y\nscope=z\n";

static struct idem_settings *const untouched = (struct idem_settings *)&live;

static int parse_once(struct idem_error *err) {
    struct idem_settings *s = untouched;
    int rc = idem_settings_parse("t", conf, strlen(conf), &s, err);

    CHECK((rc == 0) == (s != untouched));
    if (rc == 0)
        idem_settings_free(s);
    return rc;
}

TEST(parsing_settings_survives_each_failed_allocation) {
    fail_each(parse_once, 10);
}

static const char *path;

static int load_once(struct idem_error *err) {
    struct idem_settings *s = untouched;
    int rc = idem_settings_load(path, &s, err);

    CHECK((rc == 0) == (s != untouched));
    if (rc == 0)
        idem_settings_free(s);
    return rc;
}

TEST(loading_settings_survives_each_failed_allocation) {
    int fd;

    path = temp_file("settings");
    fd = creat(path, 0600);

    CHECK(write(fd, conf, strlen(conf)) == (ssize_t)strlen(conf));
    close(fd);
    fail_each(load_once, 11);
}

static struct idem_settings *original;

static int copy_once(struct idem_error *err) {
    struct idem_settings *s = untouched;
    int rc = idem_settings_copy(original, &s, err);

    CHECK((rc == 0) == (s != untouched));
    if (rc == 0)
        idem_settings_free(s);
    return rc;
}

TEST(copying_settings_survives_each_failed_allocation) {
    CHECK_INT(idem_settings_parse("t", conf, strlen(conf), &original, NULL), 0);
    fail_each(copy_once, 9);
    idem_settings_free(original);
}

static int guard_once(struct idem_error *err) {
    const struct idem_policy policy = {.name = "b", .prefix = "p", .scope = "s", .message = "m"};
    const struct idem_policy door = {.prefix = "d", .scope = "d"};
    struct idem_guard *const none = (struct idem_guard *)&live, *g = none;
    int rc = idem_guard_make(original, &policy, &door, &g, err);

    CHECK((rc == 0) == (g != none));
    if (rc == 0)
        idem_guard_free(g);
    return rc;
}

TEST(making_a_guard_survives_each_failed_allocation) {
    CHECK_INT(idem_settings_parse("t", conf, strlen(conf), &original, NULL), 0);
    fail_each(guard_once, 12);
    idem_settings_free(original);
}

TEST(a_text_that_cannot_be_copied_leaves_the_old_one) {
    struct idem_layer layer = {0};
    struct idem_error err;

    CHECK_INT(idem_policy_set(&layer, "prefix", 6, "old", 3, &err), 0);
    until_failure = 0;
    CHECK_INT(idem_policy_set(&layer, "prefix", 6, "new", 3, &err), IDEM_E_NOMEM);
    CHECK_STR(layer.policy.prefix, "old");
    idem_policy_release(&layer);
    CHECK_INT(live, 0);
}

static struct idem_guard *standing;

static int with_once(struct idem_error *err) {
    const struct idem_policy with = {.prefix = "w", .preset = IDEM_PRESET_QUEUE};
    struct idem_policy call;

    return idem_guard_with(standing, &with, &call, err);
}

TEST(a_calls_own_values_need_no_memory) {
    const struct idem_policy policy = {.prefix = "p", .scope = "s"};

    CHECK_INT(idem_guard_make(NULL, &policy, NULL, &standing, NULL), 0);
    until_failure = 0;
    CHECK_INT(with_once(NULL), 0);
    CHECK_INT(until_failure, 0);
    until_failure = -1;
    idem_guard_free(standing);
    CHECK_INT(live, 0);
}

TEST_MAIN
