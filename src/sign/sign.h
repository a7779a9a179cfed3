/*
 * Internals of signed requests.
 *
 *     sign_keyring.c  the file of secrets; signatures
 *     signer.c        the rules, parsed from words
 *     sign_message.c  RFC 9421: the parts of a signature, and the text that it signs; RFC 9530:
 *                     Content-Digest
 *     sign_classic.c  the classic form: four headers
 *     sign_verify.c   the order in which a request is checked; asks the store about a nonce, on a
 *                     loop; a blocking call around check and nonce
 *     sign_make.c     signs a request
 *     sign_request.c  a C caller's request
 *
 * Memory use is at most the length of the request times a constant.
 */
#ifndef IDEM_SIGN_SIGN_H
#define IDEM_SIGN_SIGN_H

#include "base/hash.h"
#include "base/text_out.h"
#include "base/words.h"
#include "http/http_field.h"
#include "protocol/record.h"
#include "sign/sign_keyring.h"
#include "store/store.h"

#define IDEM_SIGN_NAMES_MAX 16
#define IDEM_SIGN_WINDOW_MS 60000
/* Nonces are kept for a window of at least this length. A shorter window can then be widened up
   to it, and captured requests stay refused. */
#define IDEM_NONCE_WINDOW_MS ((int64_t)12 * 3600 * 1000)
/* The largest clock difference between two machines that share a store. */
#define IDEM_NONCE_SKEW_MS 60000
/* The maximum length of a signed text. */
#define IDEM_SIGN_TEXT_MAX ((size_t)256 << 10)

extern const struct idem_word idem_words_sign_form[];
extern const struct idem_word idem_words_sequence[];

struct idem_signer {
    struct idem_keyring *keyring;
    enum idem_sign_form form;
    enum idem_sequence sequence;
    int64_t window_ms;
    int64_t longest_ms; /* the longest window that any signer applies to requests with these nonces:
                           its own, unless the host knows of another */
    struct idem_http_text names[IDEM_SIGN_NAMES_MAX]; /* lower case, in `text` */
    size_t names_n;
    char *text;
};

/* A request, with its body's hashes. Borrowed. */
struct idem_sign_request {
    struct idem_http_text method, scheme, authority;
    struct idem_http_text path;
    struct idem_http_text query; /* .at is NULL: no question mark */
    const struct idem_http_header *headers;
    size_t headers_n;
    bool has_body;
    const unsigned char *sha256; /* of the body, even if it is empty */
    const unsigned char *sha512; /* NULL: unknown, and Content-Digest must have another kind */
};

/* Returns the header of that name; *ret_n is the number of such headers, and the result is
   meaningful only if it is 1. */
struct idem_http_text idem_sign_header(const struct idem_sign_request *request,
                                       struct idem_http_text name, size_t *ret_n);
/* Joins all headers of that name by ", ". */
void idem_sign_headers(const struct idem_sign_request *request, struct idem_http_text name,
                       struct idem_out *out, size_t *ret_n);

/* The proof that a request carries. Its texts borrow from the request, or from `fields`. */
struct idem_sign_parts {
    char key_id[IDEM_KEY_ID_MAX + 1], nonce[IDEM_NONCE_MAX + 1];
    size_t key_id_len, nonce_len;
    bool timed, expires;
    size_t signatures; /* in the request, including this one */
    bool known;        /* a key of that id exists */
    int64_t time_ms, expires_ms;
    int64_t number; /* if there is a sequence */
    enum idem_sign_alg alg;
    unsigned char signature[IDEM_SIGNATURE_MAX];
    size_t signature_len;
    struct idem_http_text timestamp;              /* classic: as received */
    struct idem_http_text components, parameters; /* rfc9421 */
    char *fields;                                 /* owned */
};

static inline struct idem_http_text idem_sign_parts_id(const struct idem_sign_parts *parts) {
    return (struct idem_http_text){parts->key_id, parts->key_id_len};
}

/* True if the text has neither blanks nor control characters, so that it fits on one line. */
bool idem_sign_is_line(struct idem_http_text text);

/* Parses the nonce as a number of a sequence into parts->number; false if it is malformed. */
bool idem_sign_number(struct idem_sign_parts *parts);

/*
 * The two forms. A detail is NULL, or a sentence that explains the fault of the request; `room`
 * holds it if it is formatted. `read` parses the signature at index `which`. `text` writes the
 * signed text, like snprintf(), and returns a detail if that is impossible.
 */
#define IDEM_SIGN_DETAIL 256
struct idem_sign_form_ops {
    const char *(*read)(const struct idem_signer *signer, const struct idem_sign_request *request,
                        size_t which, struct idem_sign_parts *ret, char room[IDEM_SIGN_DETAIL],
                        bool *ret_nomem);
    const char *(*text)(const struct idem_signer *signer, const struct idem_sign_request *request,
                        const struct idem_sign_parts *parts, struct idem_out *out,
                        char room[IDEM_SIGN_DETAIL]);
    /* NULL if the body matches the signature, else a detail; *ret_incomplete: the body cannot be
       checked. */
    const char *(*body)(const struct idem_sign_request *request,
                        const struct idem_sign_parts *parts, bool *ret_incomplete);
};
extern const struct idem_sign_form_ops idem_sign_rfc9421, idem_sign_classic;
const struct idem_sign_form_ops *idem_sign_form(enum idem_sign_form form);

/* Compares Content-Digest with the body: NULL, or a detail. *ret_incomplete: the field has no
   digest of a known kind, or is malformed. */
const char *idem_digest_check(const struct idem_sign_request *request, bool *ret_incomplete);
/* The size of a Content-Digest value for a new signature. */
#define IDEM_DIGEST_TEXT 64
void idem_digest_print(const unsigned char sha256[IDEM_HASH_LEN], char out[IDEM_DIGEST_TEXT]);

/* Builds the signed text, with a NUL. 0; IDEM_E_NOMEM; or 1 with *ret_detail. The caller frees
 *ret. */
int idem_sign_text(const struct idem_signer *signer, const struct idem_sign_request *request,
                   const struct idem_sign_parts *parts, char **ret, size_t *ret_len,
                   const char **ret_detail, char room[IDEM_SIGN_DETAIL]);

/* The clock of this machine, in ms since 1970. */
int64_t idem_sign_now(void);

/* The outcome of all checks except the nonce. */
struct idem_sign_checked {
    enum idem_proof proof;
    const char *detail; /* NULL: valid so far */
    char room[IDEM_SIGN_DETAIL];
    struct idem_sign_parts parts;
    char *text; /* the text that should have been signed, if it is known */
};
int idem_sign_check(const struct idem_signer *signer, const struct idem_sign_request *request,
                    int64_t now_ms, struct idem_sign_checked *ret, struct idem_error *err);
void idem_sign_checked_release(struct idem_sign_checked *checked);

/* The lifetime of a nonce if no window is longer than this one. */
int64_t idem_nonce_life(int64_t longest_ms);
/* True if a nonce that was stored while the longest window was `before_ms` is kept until its
   request is too old for a window of `now_ms`. 0 as `before_ms` means a window of unknown
   length. */
bool idem_nonce_outlives(int64_t before_ms, int64_t now_ms);

/* The nonce: idem_nonce_op() makes the operation for the store, idem_nonce_answer() interprets
   its result: NULL, or the detail of a refusal. */
int idem_nonce_op(const struct idem_signer *signer, const struct idem_sign_parts *parts,
                  struct idem_op *ret, struct idem_error *err);
const char *idem_nonce_answer(const struct idem_signer *signer, const struct idem_op *op,
                              char room[IDEM_SIGN_DETAIL]);

/* Checks a nonce on a loop. rc is 0 with the detail, NULL if the nonce was new; or a code with
   err. The object may be freed at any time, also inside its callback. The signer must outlive
   it. */
struct idem_nonce;
typedef void idem_nonce_cb(struct idem_nonce *nonce, int rc, const char *detail,
                           const struct idem_error *err, void *data);
int idem_nonce_new(struct idem *h, const struct idem_signer *signer,
                   const struct idem_sign_parts *parts, idem_nonce_cb *cb, void *data,
                   struct idem_nonce **ret, struct idem_error *err);
void idem_nonce_free(struct idem_nonce *nonce);

/* Counts a refusal in the store's statistics. */
void idem_proof_tally(struct idem *h, enum idem_proof proof);

#endif
