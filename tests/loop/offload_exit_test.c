/*
 * A process that ends while a thread of the library is at work: OpenSSL's tables stay, so that the
 * thread may be in the middle of a TLS handshake. OPENSSL_atexit() shows whether OpenSSL frees
 * them.
 */
#include <openssl/crypto.h>
#include <openssl/evp.h>

#include "loop/offload.h"
#include "loop/poll.h"
#include "test.h"

#define FREED 3

static void tables_freed(void) {
    _exit(FREED);
}

static void work(void *shared) {
    (void)shared;
}

static void done(void *data) {
    (void)data;
}

/* As a host that has used OpenSSL before the library starts its first thread. */
static void use_and_exit(void) {
    static const struct idem_offload_kind kind = {.work = work, .release = work};
    struct idem_loop loop;
    struct idem_poll poll;
    struct idem_host host;

    EVP_MD_free(EVP_MD_fetch(NULL, "SHA256", NULL));
    CHECK_INT(OPENSSL_atexit(tables_freed), 1);
    idem_poll_init(&poll);
    host = idem_poll_host(&poll);
    idem_loop_init(&loop, &host);
    CHECK(idem_offload_new(&loop, &kind, NULL, done, NULL) != NULL);
    exit(0);
}

TEST(openssl_stays_when_a_process_ends_that_has_used_it_before) {
    pid_t pid = fork();
    int status;

    if (pid == 0)
        use_and_exit();
    CHECK_INT(waitpid(pid, &status, 0), pid);
    CHECK(WIFEXITED(status));
    CHECK_INT(WEXITSTATUS(status), 0);
}

TEST_MAIN
