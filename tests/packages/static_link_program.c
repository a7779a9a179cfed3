/*
 * A program whose own functions have the names of some inside the library; see
 * static_link.sh.
 */
#include <idem.h>
#include <stdio.h>

int lmdb_now(void);
int lmdb_env_open(void);
int idem_random(void);
int idem_sha256(void);

int lmdb_now(void) {
    return 1;
}

int lmdb_env_open(void) {
    return 2;
}

/* A program should not choose these names: the linker may report the conflict, or not. */
int idem_random(void) {
    return 3;
}

int idem_sha256(void) {
    return 4;
}

static enum idem_result nothing(struct idem_run *run, void *data) {
    (void)run;
    (void)data;
    return IDEM_RESULT_DONE;
}

static const char *once(struct idem *h, struct idem_guard *guard) {
    struct idem_args args = {.key = "k", .key_len = 1};
    struct idem_outcome out;

    if (idem_call(h, guard, &args, nothing, NULL, &out, NULL) < 0)
        return "error";
    idem_outcome_release(&out);
    return idem_verdict_name(out.verdict);
}

int main(int argc, char **argv) {
    const struct idem_policy policy = {.prefix = "p:", .scope = IDEM_SCOPE_NONE};
    struct idem_guard *guard;
    struct idem_error err;
    struct idem *h;

    if (argc != 2 || idem_open(argv[1], NULL, &h, &err) < 0)
        return 1;
    if (idem_guard_new(h, &policy, &guard, &err) < 0)
        return 1;
    printf("%s, ", once(h, guard));
    printf("then %s\n", once(h, guard));
    idem_guard_free(guard);
    idem_close(h);
    return lmdb_now() + lmdb_env_open() + idem_random() + idem_sha256() == 10 ? 0 : 1;
}
