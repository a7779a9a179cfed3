/*
 * Signers in tests: a file of secrets in a temporary directory, requests, and
 * both ends.
 */
#ifndef IDEM_TEST_SIGN_RIG_H
#define IDEM_TEST_SIGN_RIG_H

#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>

#include "sign/sign.h"
#include "sign/sign_request.h"
#include "temp.h"
#include "test.h"

/* The keys of RFC 9421, B.1, and one for the classic form. */
#define RFC_SECRET                                                                                 \
    "uzvJfB4u3N0Jy4T7NZ75MDVcr8zSTInedJtkgcu46YW4XByzNJjxBdtjUkdJPBtbmHhIDi6pcl8jsasjlTMtDQ=="
#define KEYS                                                                                       \
    "# for tests\n"                                                                                \
    "test-shared-secret hmac-sha256 base64:" RFC_SECRET "\n"                                       \
    "test-key-ed25519 ed25519-secret base64:n4Ni+HpISpVObnQMW0wOhCKROaIKqKtW/2ZYb2p9KcU=\n"        \
    "public-only ed25519 base64:JrQLj5P/89iXES9+vFgrIy29clF9CC/oPPsw3c5D0bs=\n"                    \
    "shop-1 hmac-sha256 text:correct horse battery staple\n"

static const enum idem_sign_form forms[] = {IDEM_SIGN_RFC9421, IDEM_SIGN_CLASSIC};

static inline int64_t now_ms(void) {
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static inline const char *keys_file(const char *text) {
    static char path[512];
    int fd;

    snprintf(path, sizeof(path), "%s/keys", temp_folder());
    unlink(path);
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    CHECK(fd >= 0);
    CHECK_INT(write(fd, text, strlen(text)), strlen(text));
    close(fd);
    return path;
}

static inline struct idem_signer *signer_of(const char *keys, struct idem_sign_rules rules) {
    struct idem_error err = {0};
    struct idem_signer *signer = NULL;

    rules.secret_file = keys_file(keys);
    if (idem_signer_new(&rules, &signer, &err) != 0) {
        fprintf(stderr, "# %s\n", err.text);
        exit(1);
    }
    return signer;
}

/* A request followed by the headers of its signature. */
struct sent {
    struct idem_request request;
    struct idem_field fields[32];
    struct idem_signature signature;
};

static inline void send_with(struct sent *sent, const struct idem_signer *signer,
                             const struct idem_request *request,
                             const struct idem_sign_with *with) {
    struct idem_error err = {0};

    *sent = (struct sent){.request = *request};
    if (idem_sign_request(signer, with, request, &sent->signature, &err) != 0) {
        fprintf(stderr, "# %s\n", err.text);
        exit(1);
    }
    for (size_t i = 0; i < request->fields_n; i++)
        sent->fields[i] = request->fields[i];
    for (size_t i = 0; i < sent->signature.fields_n; i++)
        sent->fields[request->fields_n + i] = sent->signature.fields[i];
    sent->request.fields = sent->fields;
    sent->request.fields_n = request->fields_n + sent->signature.fields_n;
}

static inline void set_field(struct sent *sent, const char *name, const char *value) {
    for (size_t i = 0; i < sent->request.fields_n; i++)
        if (strcasecmp(sent->fields[i].name, name) == 0) {
            sent->fields[i].value = value;
            return;
        }
    CHECK_STR(name, "the name of a field");
}

static inline void send_as(struct sent *sent, const struct idem_signer *signer, const char *key_id,
                           const struct idem_request *request) {
    struct idem_sign_with with = {.key_id = key_id};

    send_with(sent, signer, request, &with);
}

static inline enum idem_proof proof_of(struct idem *h, const struct idem_signer *signer,
                                       const struct idem_request *request) {
    struct idem_verified verified = {0};
    struct idem_error err = {0};

    if (idem_verify_request(h, signer, request, &verified, &err) != 0) {
        fprintf(stderr, "# %s\n", err.text);
        exit(1);
    }
    if (verified.proof != IDEM_PROOF_GOOD)
        fprintf(stderr, "# %s: %s\n", idem_proof_name(verified.proof), verified.detail);
    idem_verified_release(&verified);
    return verified.proof;
}

#endif
