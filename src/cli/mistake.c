/*
 * The customary mistakes of who signs. Each is a request, a text or a secret that is a little
 * different; where the signature fits that, the mistake is found. Two of them at once are not
 * looked for. No memory is like no mistake.
 */
#include "cli/mistake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "http/binary.h"
#include "http/chars.h"

/* One mistake, tried: what it changes. */
struct attempt {
    const struct cli_wrong *wrong;
    const char *word; /* of its row */
    struct idem_sign_request request;
    struct idem_sign_parts parts;
    unsigned char sha256[IDEM_HASH_LEN], sha512[IDEM_SHA512_LEN];
    char room[512]; /* for a short text of its own */
    char *held;     /* for a long one; freed behind it */
};

static bool classic(const struct attempt *attempt) {
    return attempt->wrong->signer->form == IDEM_SIGN_CLASSIC;
}

/* The body. */

static bool body_hash(struct attempt *attempt, const char *bytes, size_t len, const char *more) {
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

static bool body_empty(struct attempt *attempt) {
    return attempt->wrong->sent->body_len > 0 && body_hash(attempt, "", 0, "");
}

static bool body_more(struct attempt *attempt) {
    const struct idem_request *sent = attempt->wrong->sent;

    return body_hash(attempt, sent->body, sent->body_len, attempt->word);
}

static bool body_less(struct attempt *attempt) {
    const struct idem_request *sent = attempt->wrong->sent;
    size_t len = strlen(attempt->word);

    return sent->body_len > len &&
           memcmp((const char *)sent->body + sent->body_len - len, attempt->word, len) == 0 &&
           body_hash(attempt, sent->body, sent->body_len - len, "");
}

/* The request line. */

static bool query_none(struct attempt *attempt) {
    bool there = attempt->request.query.at != NULL;

    attempt->request.query = (struct idem_http_text){NULL, 0};
    return there;
}

static bool slash_none(struct attempt *attempt) {
    struct idem_http_text *path = &attempt->request.path;

    return path->len > 1 && path->at[--path->len] == '/';
}

static bool slash_more(struct attempt *attempt) {
    struct idem_http_text *path = &attempt->request.path;

    if (path->len + 1 > sizeof(attempt->room) || path->at[path->len - 1] == '/')
        return false;
    memcpy(attempt->room, path->at, path->len);
    attempt->room[path->len] = '/';
    *path = (struct idem_http_text){attempt->room, path->len + 1};
    return true;
}

static bool method_lower(struct attempt *attempt) {
    struct idem_http_text *method = &attempt->request.method;

    if (method->len > sizeof(attempt->room))
        return false;
    for (size_t i = 0; i < method->len; i++)
        attempt->room[i] = idem_lower(method->at[i]);
    method->at = attempt->room;
    return true;
}

static bool method_other(struct attempt *attempt) {
    attempt->request.method = (struct idem_http_text){attempt->word, strlen(attempt->word)};
    return true;
}

static bool scheme_other(struct attempt *attempt) {
    attempt->request.scheme = (struct idem_http_text){attempt->word, strlen(attempt->word)};
    return true;
}

static bool port_none(struct attempt *attempt) {
    struct idem_http_text *authority = &attempt->request.authority;

    while (authority->len > 0 && idem_is_digit(authority->at[authority->len - 1]))
        authority->len--;
    return authority->len > 0 && authority->at[--authority->len] == ':';
}

static bool host_local(struct attempt *attempt) {
    struct idem_http_text *authority = &attempt->request.authority;
    const char *colon = authority->len > 0 ? memrchr(authority->at, ':', authority->len) : NULL;
    int len = snprintf(attempt->room, sizeof(attempt->room), "%s%.*s", attempt->word,
                       colon == NULL ? 0 : (int)(authority->at + authority->len - colon),
                       colon == NULL ? "" : colon);

    *authority = (struct idem_http_text){attempt->room, (size_t)len};
    return (size_t)len < sizeof(attempt->room);
}

/* The parts. */

static bool time_seconds(struct attempt *attempt) {
    struct idem_http_text *timestamp = &attempt->parts.timestamp;

    if (timestamp->len < 12)
        return false;
    timestamp->len -= 3;
    return true;
}

static bool time_milliseconds(struct attempt *attempt) {
    struct idem_http_text *timestamp = &attempt->parts.timestamp;
    int len = snprintf(attempt->room, sizeof(attempt->room), "%.*s000", (int)timestamp->len,
                       timestamp->at);

    *timestamp = (struct idem_http_text){attempt->room, (size_t)len};
    return true;
}

/* Signature bytes that are themselves written as text: hex within base64. */
static bool signature_text(struct attempt *attempt) {
    struct idem_http_text text = {attempt->room, attempt->parts.signature_len};

    memcpy(attempt->room, attempt->parts.signature, text.len);
    return text.len == (size_t)2 * IDEM_HASH_LEN &&
           idem_hex_decode(text, attempt->parts.signature, IDEM_SIGNATURE_MAX,
                           &attempt->parts.signature_len);
}

/* The text. Each makes another of it, with room for what it adds. */

static bool text_newline(struct attempt *attempt, struct idem_http_text *text) {
    memcpy(attempt->held, text->at, text->len);
    attempt->held[text->len] = '\n';
    *text = (struct idem_http_text){attempt->held, text->len + 1};
    return true;
}

static bool text_crlf(struct attempt *attempt, struct idem_http_text *text) {
    size_t len = 0;

    for (size_t i = 0; i < text->len; i++) {
        if (text->at[i] == '\n')
            attempt->held[len++] = '\r';
        attempt->held[len++] = text->at[i];
    }
    *text = (struct idem_http_text){attempt->held, len};
    return true;
}

static bool text_headless(struct attempt *attempt, struct idem_http_text *text) {
    size_t first = sizeof("IDEM-SIGN-1\n") - 1;

    (void)attempt;
    text->at += first;
    text->len -= first;
    return true;
}

/* Of the body, whose hash stands last. */
static bool text_upper(struct attempt *attempt, struct idem_http_text *text) {
    size_t from = text->len - (size_t)2 * IDEM_HASH_LEN;

    memcpy(attempt->held, text->at, text->len);
    for (size_t i = from; i < text->len; i++)
        if (attempt->held[i] >= 'a' && attempt->held[i] <= 'f')
            attempt->held[i] = (char)(attempt->held[i] - 'a' + 'A');
    text->at = attempt->held;
    return true;
}

/* The third line as it is sent; it is as long, whatever the order. */
static bool text_unsorted(struct attempt *attempt, struct idem_http_text *text) {
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
    const char *says;
    enum form form;
    bool (*request)(struct attempt *attempt);                             /* one of these */
    bool (*text)(struct attempt *attempt, struct idem_http_text *text);
    const char *word;
} mistakes[] = {
    {"an empty body", BOTH, body_empty, NULL, NULL},
    {"the body with a newline at its end", BOTH, body_more, NULL, "\n"},
    {"the body without the newline at its end", BOTH, body_less, NULL, "\n"},
    {"the body without the CR LF at its end", BOTH, body_less, NULL, "\r\n"},
    {"the path without the query", BOTH, query_none, NULL, NULL},
    {"the path without the slash at its end", BOTH, slash_none, NULL, NULL},
    {"the path with a slash at its end", BOTH, slash_more, NULL, NULL},
    {"the query in the order in which it is sent: its parameters are sorted by name", CLASSIC, NULL, text_unsorted, NULL},
    {"the method in lower case", BOTH, method_lower, NULL, NULL},
    {"the method GET", BOTH, method_other, NULL, "GET"},
    {"the method POST", BOTH, method_other, NULL, "POST"},
    {"the method PUT", BOTH, method_other, NULL, "PUT"},
    {"the method PATCH", BOTH, method_other, NULL, "PATCH"},
    {"the method DELETE", BOTH, method_other, NULL, "DELETE"},
    {"http", RFC9421, scheme_other, NULL, "http"},
    {"https", RFC9421, scheme_other, NULL, "https"},
    {"the host without its port", RFC9421, port_none, NULL, NULL},
    {"the host localhost", RFC9421, host_local, NULL, "localhost"},
    {"the host 127.0.0.1", RFC9421, host_local, NULL, "127.0.0.1"},
    {"the timestamp in seconds, and milliseconds are sent", CLASSIC, time_seconds, NULL, NULL},
    {"the timestamp in milliseconds, and seconds are sent", CLASSIC, time_milliseconds, NULL, NULL},
    {"a text with a newline at its end", BOTH, NULL, text_newline, NULL},
    {"a text whose lines end with CR LF", BOTH, NULL, text_crlf, NULL},
    {"a text without its first line, IDEM-SIGN-1", CLASSIC, NULL, text_headless, NULL},
    {"the body's hash in upper case", CLASSIC, NULL, text_upper, NULL},
    {"this request, but sent as the hex text of its bytes: base64 has the bytes themselves", RFC9421, signature_text, NULL, NULL},
};
/* clang-format on */

static struct idem_http_text id_of(const struct idem_sign_parts *parts) {
    return (struct idem_http_text){parts->key_id, parts->key_id_len};
}

static bool same(struct idem_http_text a, struct idem_http_text b) {
    return a.len == b.len && memcmp(a.at, b.at, a.len) == 0;
}

static bool text_fits(const struct attempt *attempt, struct idem_http_text text) {
    return idem_keyring_verify(attempt->wrong->signer->keyring, id_of(&attempt->parts),
                               attempt->parts.alg, text, attempt->parts.signature,
                               attempt->parts.signature_len);
}

/* Where the digest is wrong, too, both must be right then. */
static bool attempt_fits(struct attempt *attempt, const struct mistake *mistake) {
    const struct idem_sign_form_row *form = idem_sign_form(attempt->wrong->signer->form);
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
           text_fits(attempt, text) &&
           form->body(&attempt->request, &attempt->parts, &incomplete) == NULL;
    free(attempt->held);
    free(made);
    return fits;
}

static bool mistake_is(const struct cli_wrong *wrong, const struct mistake *mistake) {
    struct attempt attempt = {
        .wrong = wrong, .word = mistake->word, .request = *wrong->request, .parts = *wrong->parts};

    if (mistake->form != BOTH && (mistake->form == CLASSIC) != classic(&attempt))
        return false;
    return (mistake->request == NULL || mistake->request(&attempt)) &&
           attempt_fits(&attempt, mistake);
}

/* Secrets. */

static bool key_find(const struct cli_wrong *wrong, struct idem_http_text text,
                     char out[CLI_MISTAKE_TEXT]) {
    const struct idem_sign_parts *parts = wrong->parts;
    const struct idem_keyring *keyring = wrong->signer->keyring;
    struct idem_http_text id;

    if (idem_keyring_verify_text(keyring, id_of(parts), text, parts->signature,
                                 parts->signature_len)) {
        snprintf(out, CLI_MISTAKE_TEXT,
                 "this request, but with the secret's text (base64 or hex) where the file has its "
                 "bytes, or the other way round");
        return true;
    }
    for (size_t i = 0; idem_keyring_id(keyring, i, &id); i++)
        if (!same(id, id_of(parts)) &&
            idem_keyring_verify(keyring, id, 0, text, parts->signature, parts->signature_len)) {
            snprintf(out, CLI_MISTAKE_TEXT, "this request, but with a secret of key id %.*s",
                     (int)id.len, id.at);
            return true;
        }
    return false;
}

static bool secret_find(const struct cli_wrong *wrong, char out[CLI_MISTAKE_TEXT]) {
    char room[IDEM_SIGN_DETAIL], *made;
    struct idem_http_text text;
    const char *detail;
    bool found;

    if (idem_sign_text(wrong->signer, wrong->request, wrong->parts, &made, &text.len, &detail,
                       room) != 0)
        return false;
    text.at = made;
    found = key_find(wrong, text, out);
    free(made);
    return found;
}

bool cli_mistake_find(const struct cli_wrong *wrong, char out[CLI_MISTAKE_TEXT]) {
    for (size_t i = 0; i < sizeof(mistakes) / sizeof(mistakes[0]); i++)
        if (mistake_is(wrong, &mistakes[i])) {
            snprintf(out, CLI_MISTAKE_TEXT, "%s", mistakes[i].says);
            return true;
        }
    return secret_find(wrong, out);
}

/* Parts. */

static bool has(const struct idem_sign_request *request, struct idem_http_text name) {
    size_t n;

    (void)idem_sign_header(request, name, &n);
    return n > 0;
}

const char *cli_mistake_parts(const struct idem_signer *signer,
                              const struct idem_sign_request *request) {
    static const struct idem_http_text sign = IDEM_HTTP_TEXT("x-sign"),
                                       input = IDEM_HTTP_TEXT("signature-input");
    unsigned char bytes[IDEM_HASH_LEN];
    struct idem_http_text value;
    size_t n, len;

    if (signer->form != IDEM_SIGN_CLASSIC)
        return has(request, sign) && !has(request, input)
                   ? "It has X-Sign, and no Signature-Input: is it of --form classic?"
                   : NULL;
    if (has(request, input) && !has(request, sign))
        return "It has Signature-Input, and no X-Sign: is it of --form rfc9421?";
    value = idem_sign_header(request, sign, &n);
    if (n == 1 && idem_base64_decode(value, bytes, sizeof(bytes), &len) && len == sizeof(bytes))
        return "X-Sign is base64; it has to be hex.";
    return NULL;
}
