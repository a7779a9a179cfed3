/*
 * Refusals: the table of their kinds, and both forms of one. Nothing can fail:
 * what does not fit is counted. No key is ever shown but by its hash.
 */
#include "http/problem.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/out.h"
#include "core/units.h"

/* clang-format off */
const struct idem_http_problem_row idem_http_problem_rows[IDEM_HTTP_PROBLEMS] = {
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
    return problem->status != 0 ? problem->status : idem_http_problem_rows[problem->kind].status;
}

bool idem_http_problem_retryable(const struct idem_http_problem *problem) {
    if (problem->retryable == IDEM_HTTP_BY_KIND)
        return idem_http_problem_rows[problem->kind].retryable;
    return problem->retryable == IDEM_HTTP_RETRY;
}

__attribute__((format(printf, 2, 3))) static void print(struct idem_out *out, const char *fmt,
                                                        ...) {
    char text[64];
    va_list args;
    int n;

    va_start(args, fmt);
    n = vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    if (n > 0)
        idem_out_put(out, text, (size_t)n < sizeof(text) ? (size_t)n : sizeof(text) - 1);
}

static size_t out_end(struct idem_out *out) {
    if (out->len < out->size)
        out->buf[out->len] = '\0';
    return out->len;
}

/* Each character of a text, U+FFFD for bytes that are none, through the form's own writer. */
typedef void char_put(struct idem_out *out, uint32_t c, const char *bytes, size_t n);

static void text_put(struct idem_out *out, struct idem_http_text text, char_put *char_out) {
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

static struct idem_http_text text_of(const char *text) {
    return (struct idem_http_text){text, strlen(text)};
}

/* JSON. */

static void json_char(struct idem_out *out, uint32_t c, const char *bytes, size_t n) {
    if (c == '"' || c == '\\')
        idem_out_put(out, "\\", 1);
    /* C1 and the two separators are legal in JSON, but not in every terminal or script. */
    if (idem_utf8_is_control(c) || c == 0x2028 || c == 0x2029)
        print(out, "\\u%04" PRIx32, c);
    else
        idem_out_put(out, bytes, n);
}

static void json_text(struct idem_out *out, const char *name, struct idem_http_text text) {
    if (text.len == 0)
        return;
    print(out, ",\"%s\":\"", name);
    text_put(out, text, json_char);
    idem_out_say(out, "\"");
}

static void json_int(struct idem_out *out, const char *name, int value) {
    if (value != 0)
        print(out, ",\"%s\":%d", name, value);
}

size_t idem_http_problem_json(const struct idem_http_problem *problem, char *buf, size_t size) {
    const struct idem_http_problem_row *row = &idem_http_problem_rows[problem->kind];
    struct idem_out out = {buf, size, 0};

    print(&out, "{\"type\":\"urn:idem:%s\"", row->word);
    json_text(&out, "title", text_of(row->title));
    json_int(&out, "status", idem_http_problem_status(problem));
    json_text(&out, "detail", problem->detail);
    print(&out, ",\"retryable\":%s", idem_http_problem_retryable(problem) ? "true" : "false");
    json_text(&out, "key_hash", problem->key_hash);
    json_int(&out, "first_status", problem->first_status);
    json_int(&out, "last_status", problem->last_status);
    json_text(&out, "reason", problem->reason);
    idem_out_say(&out, "}\n");
    return out_end(&out);
}

/* HTML. */

static void html_char(struct idem_out *out, uint32_t c, const char *bytes, size_t n) {
    switch (c) {
    case '&':
        idem_out_say(out, "&amp;");
        break;
    case '<':
        idem_out_say(out, "&lt;");
        break;
    case '>':
        idem_out_say(out, "&gt;");
        break;
    case '"':
        idem_out_say(out, "&quot;");
        break;
    case '\'':
        idem_out_say(out, "&#39;");
        break;
    default:
        /* Other controls are no characters of HTML, however they are written. */
        if (idem_utf8_is_control(c) && c != '\n' && c != '\t')
            idem_out_put(out, "\xef\xbf\xbd", 3);
        else
            idem_out_put(out, bytes, n);
    }
}

/* Self-contained: it must look right where nothing else can be loaded. The message may be in any
   language and direction; the rest is English, and says so. */
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

static void html_retry(struct idem_out *out, const struct idem_http_problem *problem) {
    idem_out_say(out, "<p lang=\"en\">");
    if (!idem_http_problem_retryable(problem))
        idem_out_say(out, "Sending it again will not change this.");
    else if (problem->retry_after > 0)
        print(out, "Please try again in %" PRId64 " second%s.", problem->retry_after,
              problem->retry_after == 1 ? "" : "s");
    else
        idem_out_say(out, "Please try again in a moment.");
    idem_out_say(out, "</p>\n");
}

static void html_status(struct idem_out *out, const char *what, int status) {
    if (status == 0)
        return;
    print(out, "<p lang=\"en\">%s", what);
    print(out, "%d.</p>\n", status);
}

size_t idem_http_problem_html(const struct idem_http_problem *problem, char *buf, size_t size) {
    const struct idem_http_problem_row *row = &idem_http_problem_rows[problem->kind];
    struct idem_out out = {buf, size, 0};

    idem_out_say(&out, page_head);
    text_put(&out, text_of(row->title), html_char);
    idem_out_say(&out, "</title>\n</head>\n<body>\n<h1 lang=\"en\">");
    text_put(&out, text_of(row->title), html_char);
    idem_out_say(&out, "</h1>\n");
    if (problem->detail.len != 0) {
        idem_out_say(&out, "<p class=\"message\" dir=\"auto\">");
        text_put(&out, problem->detail, html_char);
        idem_out_say(&out, "</p>\n");
    }
    html_status(&out, "The first answer had status ", problem->first_status);
    html_status(&out, "The last answer had status ", problem->last_status);
    if (problem->reason.len != 0) {
        idem_out_say(&out, "<p class=\"message\" dir=\"auto\">");
        text_put(&out, problem->reason, html_char);
        idem_out_say(&out, "</p>\n");
    }
    html_retry(&out, problem);
    print(&out, "<p lang=\"en\"><small>%d %s", idem_http_problem_status(problem), row->word);
    if (problem->key_hash.len != 0) {
        idem_out_say(&out, "<br>");
        text_put(&out, problem->key_hash, html_char);
    }
    idem_out_say(&out, "</small></p>\n</body>\n</html>\n");
    return out_end(&out);
}
