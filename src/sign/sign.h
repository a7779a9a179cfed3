/*
 * Signed requests, inside.
 *
 *     keyring.c   the file of secrets; signatures
 *     signer.c    the rules, read from words
 *     message.c   RFC 9421: the parts of a signature, and what it signs
 *     digest.c    RFC 9530: Content-Digest
 *     classic.c   the same for four headers
 *     check.c     the order in which a request is checked
 *     make.c      how one is signed
 *     nonce.c     asks the store, on a loop
 *     request.c   a C caller's request
 *     verify.c    a blocking call around check and nonce
 *
 * Nothing here allocates more than what was sent is long, times a constant.
 */
#ifndef IDEM_SIGN_SIGN_H
#define IDEM_SIGN_SIGN_H

#include "core/hash.h"
#include "core/out.h"
#include "core/record.h"
#include "core/words.h"
#include "http/field.h"
#include "sign/keyring.h"
#include "store/store.h"

#define IDEM_SIGN_NAMES_MAX 16
#define IDEM_SIGN_WINDOW_MS 60000
/* What is signed has no more bytes than this. */
#define IDEM_SIGN_TEXT_MAX ((size_t)256 << 10)

extern const struct idem_word idem_words_sign_form[];
extern const struct idem_word idem_words_sequence[];

struct idem_signer {
    struct idem_keyring *keyring;
    enum idem_sign_form form;
    enum idem_sequence sequence;
    int64_t window_ms;
    struct idem_http_text names[IDEM_SIGN_NAMES_MAX]; /* lower case, in `text` */
    size_t names_n;
    char *text;
};

/* A request, with its body's hashes. Borrowed. */
struct idem_sign_request {
    struct idem_http_text method, scheme, authority;
    struct idem_http_text path;
    struct idem_http_text query; /* .at is NULL: there is no question mark */
    const struct idem_http_header *headers;
    size_t headers_n;
    bool has_body;
    const unsigned char *sha256; /* of the body, also of an empty one */
    const unsigned char *sha512; /* NULL: not known, and Content-Digest must have another */
};

/* The only header of that name, and how many there are. */
struct idem_http_text idem_sign_header(const struct idem_sign_request *request,
                                       struct idem_http_text name, size_t *ret_n);
/* All of them, joined by ", ". */
void idem_sign_headers(const struct idem_sign_request *request, struct idem_http_text name,
                       struct idem_out *out, size_t *ret_n);

/* What a request says to prove itself. Its texts are borrowed from the request, or from `fields`.
 */
struct idem_sign_parts {
    char key_id[IDEM_KEY_ID_MAX + 1], nonce[IDEM_NONCE_MAX + 1];
    size_t key_id_len, nonce_len;
    bool timed, expires;
    bool several; /* have signed: which one is meant depends on whose keys are known */
    int64_t time_ms, expires_ms;
    int64_t number; /* where there is a sequence */
    enum idem_sign_alg alg;
    unsigned char signature[IDEM_SIGNATURE_MAX];
    size_t signature_len;
    struct idem_http_text timestamp;              /* classic: as it was sent */
    struct idem_http_text components, parameters; /* rfc9421 */
    char *fields;                                 /* owned */
};

/* Whether it has neither blanks nor control characters: it is one line, whatever else. */
bool idem_sign_is_line(struct idem_http_text text);

/* Whether a sequence's number is one: into parts->number. */
bool idem_sign_number(struct idem_sign_parts *parts);

/*
 * The two forms. A detail is NULL, or a sentence that says what is wrong with the request; it goes
 * into `room` where it is made. `text` writes what is signed, like snprintf(): *ret_detail says why
 * that cannot be.
 */
#define IDEM_SIGN_DETAIL 256
struct idem_sign_form_row {
    const char *(*read)(const struct idem_signer *signer, const struct idem_sign_request *request,
                        struct idem_sign_parts *ret, char room[IDEM_SIGN_DETAIL], bool *ret_nomem);
    const char *(*text)(const struct idem_signer *signer, const struct idem_sign_request *request,
                        const struct idem_sign_parts *parts, struct idem_out *out,
                        char room[IDEM_SIGN_DETAIL]);
    /* Whether the body is what was signed; *ret_incomplete: nobody can tell. */
    const char *(*body)(const struct idem_sign_request *request,
                        const struct idem_sign_parts *parts, bool *ret_incomplete);
};
extern const struct idem_sign_form_row idem_sign_rfc9421, idem_sign_classic;
const struct idem_sign_form_row *idem_sign_form(enum idem_sign_form form);

/* Content-Digest, against the body: NULL or what is wrong; *ret_incomplete: there is no digest of a
   kind that is known. */
const char *idem_digest_check(const struct idem_sign_request *request, bool *ret_incomplete);
/* Of a request's own, room for the field's value. */
#define IDEM_DIGEST_TEXT 64
void idem_digest_print(const unsigned char sha256[IDEM_HASH_LEN], char out[IDEM_DIGEST_TEXT]);

/* What is signed, as one text with a NUL: 0, IDEM_E_NOMEM, or 1 with *ret_detail. Owned. */
int idem_sign_text(const struct idem_signer *signer, const struct idem_sign_request *request,
                   const struct idem_sign_parts *parts, char **ret, size_t *ret_len,
                   const char **ret_detail, char room[IDEM_SIGN_DETAIL]);

/* This machine's clock, in ms since 1970. */
int64_t idem_sign_now(void);

/* All but the nonce. */
struct idem_sign_checked {
    enum idem_proof proof;
    const char *detail; /* NULL: it is good so far */
    char room[IDEM_SIGN_DETAIL];
    struct idem_sign_parts parts;
    char *text; /* what should have been signed, where that is known */
};
int idem_sign_check(const struct idem_signer *signer, const struct idem_sign_request *request,
                    int64_t now_ms, struct idem_sign_checked *ret, struct idem_error *err);
void idem_sign_checked_release(struct idem_sign_checked *checked);

/* The nonce: what to ask the store, and what its answer means: NULL, or the detail of a refusal. */
int idem_nonce_op(const struct idem_signer *signer, const struct idem_sign_parts *parts,
                  struct idem_op *ret, struct idem_error *err);
const char *idem_nonce_answer(const struct idem_signer *signer, const struct idem_op *op,
                              char room[IDEM_SIGN_DETAIL]);

/* On a loop: rc is 0 with the detail, NULL if the nonce was new; or a code with err. It may be
   freed at any time, also inside its call-back. The signer must outlive it. */
struct idem_nonce;
typedef void idem_nonce_cb(struct idem_nonce *nonce, int rc, const char *detail,
                           const struct idem_error *err, void *data);
int idem_nonce_new(struct idem *h, const struct idem_signer *signer,
                   const struct idem_sign_parts *parts, idem_nonce_cb *cb, void *data,
                   struct idem_nonce **ret, struct idem_error *err);
void idem_nonce_free(struct idem_nonce *nonce);

/* Counts a refusal, in the store. */
void idem_proof_tally(struct idem *h, enum idem_proof proof);

#endif
