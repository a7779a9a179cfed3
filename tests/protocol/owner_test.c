/*
 * No owner id is given out twice: not by threads, not by a child and its parent, not by a machine
 * and its copy.
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "protocol/owner.h"
#include "test.h"

#define THREADS 8
#define EACH 20000
#define FAMILY 100                /* more than the page holds */
#define HALF (IDEM_OWNER_LEN / 2) /* with the first the time is mixed, with the second nothing */

static atomic_bool copied; /* the system gives what it has given to another machine */

ssize_t getrandom(void *out, size_t len, unsigned flags) {
    if (!copied)
        return syscall(SYS_getrandom, out, len, flags);
    memset(out, 0x5a, len);
    return (ssize_t)len;
}

static int compare(const void *a, const void *b) {
    return memcmp(a, b, IDEM_OWNER_LEN);
}

static int compare_random(const void *a, const void *b) {
    return memcmp((const unsigned char *)a + HALF, (const unsigned char *)b + HALF, HALF);
}

static void check_all_different(unsigned char (*ids)[IDEM_OWNER_LEN], size_t n) {
    qsort(ids, n, IDEM_OWNER_LEN, compare);
    for (size_t i = 1; i < n; i++)
        CHECK(memcmp(ids[i - 1], ids[i], IDEM_OWNER_LEN) != 0);
}

/* However the time helps, what is random differs, too. */
static void check_all_random(unsigned char (*ids)[IDEM_OWNER_LEN], size_t n) {
    static const unsigned char zero[HALF];

    qsort(ids, n, IDEM_OWNER_LEN, compare_random);
    for (size_t i = 0; i < n; i++) {
        CHECK(memcmp(ids[i] + HALF, zero, HALF) != 0);
        CHECK(i == 0 || compare_random(ids[i - 1], ids[i]) != 0);
    }
}

static void *thread_main(void *data) {
    unsigned char(*ids)[IDEM_OWNER_LEN] = data;

    for (unsigned i = 0; i < EACH; i++)
        if (idem_owner_make(ids[i]) != 0)
            return data;
    return NULL;
}

TEST(threads_never_get_the_same) {
    unsigned char(*ids)[IDEM_OWNER_LEN] = malloc((size_t)THREADS * EACH * IDEM_OWNER_LEN);
    pthread_t threads[THREADS];
    void *failed;

    CHECK(ids != NULL);
    for (unsigned i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, thread_main, ids + (size_t)i * EACH) == 0);
    for (unsigned i = 0; i < THREADS; i++) {
        CHECK(pthread_join(threads[i], &failed) == 0);
        CHECK(failed == NULL);
    }
    check_all_different(ids, (size_t)THREADS * EACH);
    check_all_random(ids, (size_t)THREADS * EACH);
    free(ids);
}

static pid_t fork_raw(void) {
    return (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
}

static void family_case(pid_t (*start)(void)) {
    unsigned char ids[2 * FAMILY + 1][IDEM_OWNER_LEN];
    int pipes[2], status;
    pid_t pid;

    CHECK_INT(idem_owner_make(ids[2 * FAMILY]), 0); /* the page is full but for one */
    CHECK(pipe(pipes) == 0);
    pid = start();
    CHECK(pid >= 0);
    for (unsigned i = 0; i < FAMILY; i++)
        if (idem_owner_make(ids[i]) != 0)
            abort();
    if (pid == 0)
        _exit(write(pipes[1], ids, sizeof(ids[0]) * FAMILY) == (ssize_t)sizeof(ids[0]) * FAMILY
                  ? 0
                  : 1);
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK_INT(status, 0);
    CHECK(read(pipes[0], ids + FAMILY, sizeof(ids[0]) * FAMILY) ==
          (ssize_t)sizeof(ids[0]) * FAMILY);
    check_all_different(ids, 2 * FAMILY + 1);
    check_all_random(ids, 2 * FAMILY + 1);
    close(pipes[0]);
    close(pipes[1]);
}

TEST(a_child_never_gets_what_its_parent_gets) {
    family_case(fork);
}

/* A fork that runs no handler of the C library. */
TEST(nor_does_a_child_by_a_bare_system_call) {
    family_case(fork_raw);
}

TEST(a_copy_of_a_machine_is_told_apart_by_the_time) {
    unsigned char ids[FAMILY][IDEM_OWNER_LEN];

    copied = true;
    for (unsigned i = 0; i < FAMILY; i++)
        CHECK_INT(idem_owner_make(ids[i]), 0);
    check_all_different(ids, FAMILY);
}

TEST_MAIN
