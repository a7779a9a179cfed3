/*
 * The usual mistakes of a client that signs. Each attempt changes the request, the signed text or
 * the secret a little; if the signature matches then, the mistake is found. Combinations of two
 * mistakes are not tried. Without memory no mistake is found.
 */
#include "cli/sign/sign_diagnose.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base64.h"
#include "base/chars.h"
#include "base/hex.h"

/* One mistake, applied to a copy of the request. */
struct attempt {
    const struct cli_wrong *wrong;
    const char *word; /* of the row in mistakes[] */
    struct idem_sign_request request;
    struct idem_sign_parts parts;
    unsigned char sha256[IDEM_HASH_LEN], sha512[IDEM_SHA512_LEN];
    char room[512]; /* for a short replacement */
    char *held;     /* for a long replacement; freed after the attempt */
};

static bool attempt_is_classic(const struct attempt *attempt) {
    return attempt->wrong->signer->form == IDEM_SIGN_CLASSIC;
}

/* The body. */

static bool attempt_body_hash(struct attempt *attempt, const char *bytes, size_t len,
                              const char *more) {
    struct idem_sha sha;
    struct idem_sha512 sha512;

    idem_sha_begin(&sha);
    idem_sha_add(&sha, bytes, len);
    idem_sha_add(&sha, more, strlen(more));
    idem_sha512_begin(&sha512);
    idem_sha512_add(&sha512, bytes, len);
    idem_sha512_add(&sha512, more, strlen(more));
    attempt->request.sha256 = attempt->sha256;
    attempt->request.sha512 = attempt->sha512;
    return (idem_sha_end(&sha, attempt->sha256) | idem_sha512_end(&sha512, attempt->sha512)) == 0;
}

static bool attempt_body_empty(struct attempt *attempt) {
    return attempt->wrong->sent->body_len > 0 && attempt_body_hash(attempt, "", 0, "");
}

static bool attempt_body_more(struct attempt *attempt) {
    const struct idem_request *sent = attempt->wrong->sent;

    return attempt_body_hash(attempt, sent->body, sent->body_len, attempt->word);
}

static bool attempt_body_less(struct attempt *attempt) {
    const struct idem_request *sent = attempt->wrong->sent;
    size_t len = strlen(attempt->word);

    return sent->body_len > len &&
           memcmp((const char *)sent->body + sent->body_len - len, attempt->word, len) == 0 &&
           attempt_body_hash(attempt, sent->body, sent->body_len - len, "");
}

/* The request line. */

static bool attempt_query_none(struct attempt *attempt) {
    bool there = attempt->request.query.at != NULL;

    attempt->request.query = (struct idem_http_text){NULL, 0};
    return there;
}

static bool attempt_slash_none(struct attempt *attempt) {
    struct idem_http_text *path = &attempt->request.path;

    return path->len > 1 && path->at[--path->len] == '/';
}

static bool attempt_slash_more(struct attempt *attempt) {
    struct idem_http_text *path = &attempt->request.path;

    if (path->len + 1 > sizeof(attempt->room) || path->at[path->len - 1] == '/')
        return false;
    memcpy(attempt->room, path->at, path->len);
    attempt->room[path->len] = '/';
    *path = (struct idem_http_text){attempt->room, path->len + 1};
    return true;
}

static bool attempt_method_lower(struct attempt *attempt) {
    struct idem_http_text *method = &attempt->request.method;

    if (method->len > sizeof(attempt->room))
        return false;
    for (size_t i = 0; i < method->len; i++)
        attempt->room[i] = idem_lower(method->at[i]);
    method->at = attempt->room;
    return true;
}

static bool attempt_method_other(struct attempt *attempt) {
    attempt->request.method = idem_http_text_of(attempt->word);
    return true;
}

static bool attempt_scheme_other(struct attempt *attempt) {
    attempt->request.scheme = idem_http_text_of(attempt->word);
    return true;
}

static bool attempt_port_none(struct attempt *attempt) {
    struct idem_http_text *authority = &attempt->request.authority;

    while (authority->len > 0 && idem_is_digit(authority->at[authority->len - 1]))
        authority->len--;
    return authority->len > 0 && authority->at[--authority->len] == ':';
}

static bool attempt_host_local(struct attempt *attempt) {
    struct idem_http_text *authority = &attempt->request.authority;
    const char *colon = authority->len > 0 ? memrchr(authority->at, ':', authority->len) : NULL;
    int len = snprintf(attempt->room, sizeof(attempt->room), "%s%.*s", attempt->word,
                       colon == NULL ? 0 : (int)(authority->at + authority->len - colon),
                       colon == NULL ? "" : colon);

    *authority = (struct idem_http_text){attempt->room, (size_t)len};
    return (size_t)len < sizeof(attempt->room);
}

/* The parts. */

static bool attempt_time_seconds(struct attempt *attempt) {
    struct idem_http_text *timestamp = &attempt->parts.timestamp;

    if (timestamp->len < 12)
        return false;
    timestamp->len -= 3;
    return true;
}

static bool attempt_time_milliseconds(struct attempt *attempt) {
    struct idem_http_text *timestamp = &attempt->parts.timestamp;
    int len = snprintf(attempt->room, sizeof(attempt->room), "%.*s000", (int)timestamp->len,
                       timestamp->at);

    *timestamp = (struct idem_http_text){attempt->room, (size_t)len};
    return true;
}

/* Decodes signature bytes that are text themselves: hex within base64. */
static bool attempt_signature_text(struct attempt *attempt) {
    size_t len = attempt->parts.signature_len;

    memcpy(attempt->room, attempt->parts.signature, len);
    if (!idem_hex_parse(attempt->room, len, attempt->parts.signature))
        return false;
    attempt->parts.signature_len = IDEM_HASH_LEN;
    return true;
}

/* The signed text. Each function replaces it; attempt->held has room for twice its length. */

static bool attempt_text_newline(struct attempt *attempt, struct idem_http_text *text) {
    memcpy(attempt->held, text->at, text->len);
    attempt->held[text->len] = '\n';
    *text = (struct idem_http_text){attempt->held, text->len + 1};
    return true;
}

static bool attempt_text_crlf(struct attempt *attempt, struct idem_http_text *text) {
    size_t len = 0;

    for (size_t i = 0; i < text->len; i++) {
        if (text->at[i] == '\n')
            attempt->held[len++] = '\r';
        attempt->held[len++] = text->at[i];
    }
    *text = (struct idem_http_text){attempt->held, len};
    return true;
}

static bool attempt_text_headless(struct attempt *attempt, struct idem_http_text *text) {
    size_t first = sizeof("IDEM-SIGN-1\n") - 1;

    (void)attempt;
    text->at += first;
    text->len -= first;
    return true;
}

/* Changes the hash of the body, which is the last line. */
static bool attempt_text_upper(struct attempt *attempt, struct idem_http_text *text) {
    size_t from = text->len - (size_t)2 * IDEM_HASH_LEN;

    memcpy(attempt->held, text->at, text->len);
    for (size_t i = from; i < text->len; i++)
        if (attempt->held[i] >= 'a' && attempt->held[i] <= 'f')
            attempt->held[i] = (char)(attempt->held[i] - 'a' + 'A');
    text->at = attempt->held;
    return true;
}

/* Replaces the third line by the target as it is sent; sorting does not change its length. */
static bool attempt_text_unsorted(struct attempt *attempt, struct idem_http_text *text) {
    const char *target = attempt->wrong->sent->target;
    size_t from = sizeof("IDEM-SIGN-1\n") - 1 + attempt->request.method.len + 1;

    if (attempt->request.query.at == NULL || from + strlen(target) > text->len)
        return false;
    memcpy(attempt->held, text->at, text->len);
    memcpy(attempt->held + from, target, strlen(target));
    text->at = attempt->held;
    return true;
}

/* clang-format off */
enum form { BOTH, CLASSIC, RFC9421 };
static const struct mistake {
    const char *description;
    enum form form;
    bool (*request)(struct attempt *attempt);                             /* or `text` below */
    bool (*text)(struct attempt *attempt, struct idem_http_text *text);
    const char *word;
} mistakes[] = {
    {"an empty body", BOTH, attempt_body_empty, NULL, NULL},
    {"the body with a newline at its end", BOTH, attempt_body_more, NULL, "\n"},
    {"the body without the newline at its end", BOTH, attempt_body_less, NULL, "\n"},
    {"the body without the CR LF at its end", BOTH, attempt_body_less, NULL, "\r\n"},
    {"the path without the query", BOTH, attempt_query_none, NULL, NULL},
    {"the path without the slash at its end", BOTH, attempt_slash_none, NULL, NULL},
    {"the path with a slash at its end", BOTH, attempt_slash_more, NULL, NULL},
    {"the query in the order in which it is sent: its parameters are sorted by name", CLASSIC, NULL, attempt_text_unsorted, NULL},
    {"the method in lower case", BOTH, attempt_method_lower, NULL, NULL},
    {"the method GET", BOTH, attempt_method_other, NULL, "GET"},
    {"the method POST", BOTH, attempt_method_other, NULL, "POST"},
    {"the method PUT", BOTH, attempt_method_other, NULL, "PUT"},
    {"the method PATCH", BOTH, attempt_method_other, NULL, "PATCH"},
    {"the method DELETE", BOTH, attempt_method_other, NULL, "DELETE"},
    {"http", RFC9421, attempt_scheme_other, NULL, "http"},
    {"https", RFC9421, attempt_scheme_other, NULL, "https"},
    {"the host without its port", RFC9421, attempt_port_none, NULL, NULL},
    {"the host localhost", RFC9421, attempt_host_local, NULL, "localhost"},
    {"the host 127.0.0.1", RFC9421, attempt_host_local, NULL, "127.0.0.1"},
    {"the timestamp in seconds, and milliseconds are sent", CLASSIC, attempt_time_seconds, NULL, NULL},
    {"the timestamp in milliseconds, and seconds are sent", CLASSIC, attempt_time_milliseconds, NULL, NULL},
    {"a text with a newline at its end", BOTH, NULL, attempt_text_newline, NULL},
    {"a text whose lines end with CR LF", BOTH, NULL, attempt_text_crlf, NULL},
    {"a text without its first line, IDEM-SIGN-1", CLASSIC, NULL, attempt_text_headless, NULL},
    {"the body's hash in upper case", CLASSIC, NULL, attempt_text_upper, NULL},
    {"this request, but sent as the hex text of its bytes: base64 has the bytes themselves", RFC9421, attempt_signature_text, NULL, NULL},
};
/* clang-format on */

static bool attempt_text_fits(const struct attempt *attempt, struct idem_http_text text) {
    return idem_keyring_verify(attempt->wrong->signer->keyring, idem_sign_parts_id(&attempt->parts),
                               attempt->parts.alg, text, attempt->parts.signature,
                               attempt->parts.signature_len);
}

/* If the digest was wrong as well, both must match now. */
static bool attempt_fits(struct attempt *attempt, const struct mistake *mistake) {
    const struct idem_sign_form_ops *form = idem_sign_form(attempt->wrong->signer->form);
    char detail_room[IDEM_SIGN_DETAIL], *made;
    struct idem_http_text text;
    const char *detail;
    bool incomplete, fits;

    if (idem_sign_text(attempt->wrong->signer, &attempt->request, &attempt->parts, &made, &text.len,
                       &detail, detail_room) != 0)
        return false;
    text.at = made;
    attempt->held = mistake->text != NULL ? malloc(2 * text.len + 1) : NULL;
    fits = (mistake->text == NULL || (attempt->held != NULL && mistake->text(attempt, &text))) &&
           attempt_text_fits(attempt, text) &&
           form->body(&attempt->request, &attempt->parts, &incomplete) == NULL;
    free(attempt->held);
    free(made);
    return fits;
}

static bool wrong_is_mistake(const struct cli_wrong *wrong, const struct mistake *mistake) {
    struct attempt attempt = {
        .wrong = wrong, .word = mistake->word, .request = *wrong->request, .parts = *wrong->parts};

    if (mistake->form != BOTH && (mistake->form == CLASSIC) != attempt_is_classic(&attempt))
        return false;
    return (mistake->request == NULL || mistake->request(&attempt)) &&
           attempt_fits(&attempt, mistake);
}

/* Secrets. */

static bool wrong_key_find(const struct cli_wrong *wrong, struct idem_http_text text,
                           char out[SIGN_DIAGNOSE_TEXT]) {
    const struct idem_sign_parts *parts = wrong->parts;
    const struct idem_keyring *keyring = wrong->signer->keyring;
    struct idem_http_text id;

    if (idem_keyring_verify_text(keyring, idem_sign_parts_id(parts), text, parts->signature,
                                 parts->signature_len)) {
        snprintf(out, SIGN_DIAGNOSE_TEXT,
                 "this request, but with the secret's text (base64 or hex) where the file has its "
                 "bytes, or the other way round");
        return true;
    }
    for (size_t i = 0; idem_keyring_id(keyring, i, &id); i++)
        if (!idem_http_equal(id, idem_sign_parts_id(parts)) &&
            idem_keyring_verify(keyring, id, 0, text, parts->signature, parts->signature_len)) {
            snprintf(out, SIGN_DIAGNOSE_TEXT, "this request, but with a secret of key id %.*s",
                     (int)id.len, id.at);
            return true;
        }
    return false;
}

static bool wrong_secret_find(const struct cli_wrong *wrong, char out[SIGN_DIAGNOSE_TEXT]) {
    char room[IDEM_SIGN_DETAIL], *made;
    struct idem_http_text text;
    const char *detail;
    bool found;

    if (idem_sign_text(wrong->signer, wrong->request, wrong->parts, &made, &text.len, &detail,
                       room) != 0)
        return false;
    text.at = made;
    found = wrong_key_find(wrong, text, out);
    free(made);
    return found;
}

bool sign_diagnose_find(const struct cli_wrong *wrong, char out[SIGN_DIAGNOSE_TEXT]) {
    for (size_t i = 0; i < sizeof(mistakes) / sizeof(mistakes[0]); i++)
        if (wrong_is_mistake(wrong, &mistakes[i])) {
            snprintf(out, SIGN_DIAGNOSE_TEXT, "%s", mistakes[i].description);
            return true;
        }
    return wrong_secret_find(wrong, out);
}

/* Parts. */

static bool sign_request_has(const struct idem_sign_request *request, struct idem_http_text name) {
    size_t n;

    (void)idem_sign_header(request, name, &n);
    return n > 0;
}

const char *sign_diagnose_parts(const struct idem_signer *signer,
                                const struct idem_sign_request *request) {
    static const struct idem_http_text sign = IDEM_HTTP_TEXT("x-sign"),
                                       input = IDEM_HTTP_TEXT("signature-input");
    unsigned char bytes[IDEM_HASH_LEN];
    struct idem_http_text value;
    size_t n, len;

    if (signer->form != IDEM_SIGN_CLASSIC)
        return sign_request_has(request, sign) && !sign_request_has(request, input)
                   ? "It has X-Sign, and no Signature-Input: is it of --form classic?"
                   : NULL;
    if (sign_request_has(request, input) && !sign_request_has(request, sign))
        return "It has Signature-Input, and no X-Sign: is it of --form rfc9421?";
    value = idem_sign_header(request, sign, &n);
    if (n == 1 && idem_base64_decode(value.at, value.len, bytes, sizeof(bytes), &len) &&
        len == sizeof(bytes))
        return "X-Sign is base64; it has to be hex.";
    return NULL;
}
