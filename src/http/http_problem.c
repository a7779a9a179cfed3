/*
 * Refusals: the table of their kinds, and their JSON and HTML forms. Nothing can fail: text that
 * does not fit is counted. A key is shown only by its hash.
 */
#include "http/http_problem.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/text_out.h"
#include "base/units.h"
#include "base/visible.h"

/* clang-format off */
const struct idem_http_problem_defaults idem_http_problem_defaults[IDEM_HTTP_PROBLEMS] = {
    [IDEM_HTTP_KEY_MISSING] =
        {"key-missing", 400, "This request needs an idempotency key", false},
    [IDEM_HTTP_KEY_MALFORMED] =
        {"key-malformed", 400, "The idempotency key cannot be read", false},
    [IDEM_HTTP_MISMATCH] =
        {"mismatch", 422, "This key was used for another request", false},
    [IDEM_HTTP_IN_PROGRESS] =
        {"in-progress", 409, "This request is being worked on", true},
    [IDEM_HTTP_DUPLICATE] =
        {"duplicate", 409, "This request was done already", false},
    [IDEM_HTTP_UNCERTAIN] =
        {"uncertain", 409, "It is not known whether this request was done", false},
    [IDEM_HTTP_FAILED] =
        {"failed", 409, "This request has failed", false},
    [IDEM_HTTP_TOKEN_REFUSED] =
        {"token-refused", 403, "This token is not valid", false},
    [IDEM_HTTP_SIGNATURE_INCOMPLETE] =
        {"signature-incomplete", 401, "The request's signature is incomplete", false},
    [IDEM_HTTP_SIGNATURE_STALE] =
        {"signature-stale", 401, "The request's timestamp is not current", false},
    [IDEM_HTTP_SIGNATURE_WRONG] =
        {"signature-wrong", 401, "The request's signature is wrong", false},
    [IDEM_HTTP_NONCE_REUSED] =
        {"nonce-reused", 401, "The request's nonce was used before", false},
    [IDEM_HTTP_STORE_UNAVAILABLE] =
        {"store-unavailable", 503, "This request cannot be taken at the moment", true},
};
/* clang-format on */

int idem_http_problem_status(const struct idem_http_problem *problem) {
    return problem->status != 0 ? problem->status
                                : idem_http_problem_defaults[problem->kind].status;
}

bool idem_http_problem_retryable(const struct idem_http_problem *problem) {
    if (problem->retryable == IDEM_HTTP_BY_KIND)
        return idem_http_problem_defaults[problem->kind].retryable;
    return problem->retryable == IDEM_HTTP_RETRY;
}

__attribute__((format(printf, 2, 3))) static void problem_print(struct idem_out *out,
                                                                const char *fmt, ...) {
    char text[64];
    va_list args;
    int n;

    va_start(args, fmt);
    n = vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    if (n > 0)
        idem_out_put(out, text, (size_t)n < sizeof(text) ? (size_t)n : sizeof(text) - 1);
}

static size_t problem_end(struct idem_out *out) {
    if (out->len < out->size)
        out->buf[out->len] = '\0';
    return out->len;
}

/* Passes each character of a text to the form's own writer; U+FFFD for bytes that are not UTF-8. */
typedef void problem_char_put(struct idem_out *out, uint32_t c, const char *bytes, size_t n);

static void problem_text_put(struct idem_out *out, struct idem_http_text text,
                             problem_char_put *char_out) {
    uint32_t c = 0;
    size_t n;

    for (size_t i = 0; i < text.len; i += n) {
        n = idem_utf8_next(text.at + i, text.len - i, &c);
        if (n != 0) {
            char_out(out, c, text.at + i, n);
        } else {
            char_out(out, 0xfffd, "\xef\xbf\xbd", 3);
            n = 1;
        }
    }
}

static struct idem_http_text problem_text_of(const char *text) {
    return (struct idem_http_text){text, strlen(text)};
}

/* JSON. */

static void problem_json_char(struct idem_out *out, uint32_t c, const char *bytes, size_t n) {
    char code[IDEM_VISIBLE_JSON];

    if (c == '"' || c == '\\')
        idem_out_put(out, "\\", 1);
    if (idem_visible(c)) {
        idem_out_put(out, bytes, n);
    } else { /* mostly legal in JSON, but people read it in terminals */
        idem_visible_json(c, code);
        idem_out_text(out, code);
    }
}

static void problem_json_text(struct idem_out *out, const char *name, struct idem_http_text text) {
    if (text.len == 0)
        return;
    problem_print(out, ",\"%s\":\"", name);
    problem_text_put(out, text, problem_json_char);
    idem_out_text(out, "\"");
}

static void problem_json_int(struct idem_out *out, const char *name, int value) {
    if (value != 0)
        problem_print(out, ",\"%s\":%d", name, value);
}

size_t idem_http_problem_json(const struct idem_http_problem *problem, char *buf, size_t size) {
    const struct idem_http_problem_defaults *defaults = &idem_http_problem_defaults[problem->kind];
    struct idem_out out = {buf, size, 0};

    problem_print(&out, "{\"type\":\"urn:idem:%s\"", defaults->word);
    problem_json_text(&out, "title", problem_text_of(defaults->title));
    problem_json_int(&out, "status", idem_http_problem_status(problem));
    problem_json_text(&out, "detail", problem->detail);
    problem_print(&out, ",\"retryable\":%s",
                  idem_http_problem_retryable(problem) ? "true" : "false");
    problem_json_text(&out, "key_hash", problem->key_hash);
    problem_json_int(&out, "first_status", problem->first_status);
    problem_json_int(&out, "last_status", problem->last_status);
    problem_json_text(&out, "reason", problem->reason);
    idem_out_text(&out, "}\n");
    return problem_end(&out);
}

/* HTML. */

static void problem_html_char(struct idem_out *out, uint32_t c, const char *bytes, size_t n) {
    static const struct {
        uint32_t c;
        const char *text;
    } escapes[] = {{'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&quot;"}, {'\'', "&#39;"}};

    for (size_t i = 0; i < sizeof(escapes) / sizeof(escapes[0]); i++)
        if (c == escapes[i].c) {
            idem_out_text(out, escapes[i].text);
            return;
        }
    /* HTML forbids the other controls, even as character references. */
    if (idem_utf8_is_control(c) && c != '\n' && c != '\t')
        idem_out_put(out, "\xef\xbf\xbd", 3);
    else
        idem_out_put(out, bytes, n);
}

/* A reason is not written by the operator: its invisible characters are made visible. The
   operator's message keeps the joiners that its language needs. */
static void problem_html_reason_char(struct idem_out *out, uint32_t c, const char *bytes,
                                     size_t n) {
    if (idem_visible(c) || c == '\n' || c == '\t')
        problem_html_char(out, c, bytes, n);
    else
        idem_out_put(out, "\xef\xbf\xbd", 3);
}

/* Self-contained: the page must look right if nothing else can be loaded. The message may be in
   any language and direction; the rest is English, and is marked as such. */
static const char page_head[] =
    "<!DOCTYPE html>\n"
    "<html>\n"
    "<head>\n"
    "<meta charset=\"utf-8\">\n"
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
    "<meta name=\"color-scheme\" content=\"light dark\">\n"
    "<meta name=\"robots\" content=\"noindex\">\n"
    "<style>\n"
    ":root{color-scheme:light dark}\n"
    "body{font:1.05rem/1.5 system-ui,sans-serif;max-width:36rem;margin:12vh auto 2rem;"
    "padding:0 1.25rem;overflow-wrap:anywhere}\n"
    "h1{font-size:1.5rem;line-height:1.25;margin:0 0 1rem}\n"
    ".message{white-space:pre-line}\n"
    "small{opacity:.75}\n"
    "</style>\n"
    "<title>";

static void problem_html_retry(struct idem_out *out, const struct idem_http_problem *problem) {
    idem_out_text(out, "<p lang=\"en\">");
    if (!idem_http_problem_retryable(problem))
        idem_out_text(out, "Sending it again will not change this.");
    else if (problem->retry_after > 0)
        problem_print(out, "Please try again in %" PRId64 " second%s.", problem->retry_after,
                      problem->retry_after == 1 ? "" : "s");
    else
        idem_out_text(out, "Please try again in a moment.");
    idem_out_text(out, "</p>\n");
}

static void problem_html_message(struct idem_out *out, struct idem_http_text text,
                                 problem_char_put *char_out) {
    if (text.len == 0)
        return;
    idem_out_text(out, "<p class=\"message\" dir=\"auto\">");
    problem_text_put(out, text, char_out);
    idem_out_text(out, "</p>\n");
}

static void problem_html_status(struct idem_out *out, const char *what, int status) {
    if (status == 0)
        return;
    problem_print(out, "<p lang=\"en\">%s", what);
    problem_print(out, "%d.</p>\n", status);
}

size_t idem_http_problem_html(const struct idem_http_problem *problem, char *buf, size_t size) {
    const struct idem_http_problem_defaults *defaults = &idem_http_problem_defaults[problem->kind];
    struct idem_out out = {buf, size, 0};

    idem_out_text(&out, page_head);
    problem_text_put(&out, problem_text_of(defaults->title), problem_html_char);
    idem_out_text(&out, "</title>\n</head>\n<body>\n<h1 lang=\"en\">");
    problem_text_put(&out, problem_text_of(defaults->title), problem_html_char);
    idem_out_text(&out, "</h1>\n");
    problem_html_message(&out, problem->detail, problem_html_char);
    problem_html_status(&out, "The first response had status ", problem->first_status);
    problem_html_status(&out, "The last response had status ", problem->last_status);
    problem_html_message(&out, problem->reason, problem_html_reason_char);
    problem_html_retry(&out, problem);
    problem_print(&out, "<p lang=\"en\"><small>%d %s", idem_http_problem_status(problem),
                  defaults->word);
    if (problem->key_hash.len != 0) {
        idem_out_text(&out, "<br>");
        problem_text_put(&out, problem->key_hash, problem_html_char);
    }
    idem_out_text(&out, "</small></p>\n</body>\n</html>\n");
    return problem_end(&out);
}
