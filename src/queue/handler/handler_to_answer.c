/*
 * The parts of an endpoint's response that matter: the delay of a retry (Retry-After), the
 * outcome (Idem-Outcome), and a message for people. Nothing here fails: unknown parts are
 * ignored.
 */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "queue/handler/handler_answer.h"
#include "queue/handler/handler_to.h"
#include "json/json.h"

static void to_answer_keep_text(struct idem_http_text value, char *buf, size_t size) {
    if (value.len >= size)
        value.len = 0; /* no known value is that long */
    if (value.len > 0)
        memcpy(buf, value.at, value.len);
    buf[value.len] = '\0';
}

void to_answer_line(struct to_answer *answer, const char *line, size_t len) {
    const char *colon = memchr(line, ':', len);
    struct idem_http_text name, value;

    if (len >= 5 && memcmp(line, "HTTP/", 5) == 0) {
        *answer = (struct to_answer){.head_len = answer->head_len};
        return;
    }
    while (len > 0 && (line[len - 1] == '\r' || line[len - 1] == '\n'))
        len--;
    answer->whole_head |= len == 0;
    if (colon == NULL)
        return;
    name = (struct idem_http_text){line, (size_t)(colon - line)};
    value = idem_http_trim((struct idem_http_text){colon + 1, len - name.len - 1});
    if (idem_http_same(name, IDEM_HTTP_TEXT("Retry-After")))
        to_answer_keep_text(value, answer->retry_after, sizeof(answer->retry_after));
    else if (idem_http_same(name, IDEM_HTTP_TEXT("Date")))
        to_answer_keep_text(value, answer->date, sizeof(answer->date));
    else if (idem_http_same(name, IDEM_HTTP_TEXT("Content-Type")))
        to_answer_keep_text(value, answer->type, sizeof(answer->type));
    else if (idem_http_same(name, IDEM_HTTP_TEXT("Idem-Outcome")))
        answer->has_outcome |= idem_http_outcome_read(value, &answer->outcome);
}

void to_answer_body(struct to_answer *answer, const char *bytes, size_t len) {
    size_t room = TO_KEPT_MAX - answer->body_len;

    if (len > room)
        len = room;
    if (len > 0)
        memcpy(answer->body + answer->body_len, bytes, len);
    answer->body_len += len;
}

static struct idem_http_text to_answer_text(const char *text) {
    return (struct idem_http_text){text, strlen(text)};
}

int64_t to_answer_delay_ms(const struct to_answer *answer) {
    int64_t now = time(NULL), seconds = 0;

    /* By the endpoint's clock if it sends one (Date): ours may differ. */
    (void)idem_http_date(to_answer_text(answer->date), now, &now);
    (void)idem_http_retry_after(to_answer_text(answer->retry_after), now,
                                HANDLER_DELAY_MAX_MS / 1000, &seconds);
    return 1000 * seconds;
}

/* The text of a problem (RFC 9457). False: there is none, or the body was longer than the kept
   part. */
static bool to_answer_problem_text(const struct to_answer *answer, char *buf, size_t size) {
    const struct idem_json *words;
    struct idem_arena arena;
    struct idem_json problem;
    bool found = false;

    idem_arena_init(&arena, (size_t)64 * TO_KEPT_MAX);
    if (idem_json_parse(answer->body, answer->body_len, &arena, &problem, NULL) == 0 &&
        problem.type == IDEM_JSON_OBJECT) {
        words = idem_json_get(&problem, "detail", strlen("detail"));
        if (words == NULL || words->type != IDEM_JSON_STRING)
            words = idem_json_get(&problem, "title", strlen("title"));
        if (words != NULL && words->type == IDEM_JSON_STRING) {
            handler_words(words->at.text, words->n, buf, size);
            found = true;
        }
    }
    idem_arena_free(&arena);
    return found;
}

/* The first line of a text. */
static void to_answer_first_line(const struct to_answer *answer, char *buf, size_t size) {
    const char *end = memchr(answer->body, '\n', answer->body_len);

    handler_words(answer->body, end == NULL ? answer->body_len : (size_t)(end - answer->body), buf,
                  size);
}

const char *to_answer_reason(const struct to_answer *answer, long status, char *buf, size_t size) {
    char words[256] = "";

    if (idem_http_type_read(to_answer_text(answer->type)) == IDEM_HTTP_JSON)
        (void)to_answer_problem_text(answer, words, sizeof(words));
    else if (strncmp(answer->type, "text/plain", strlen("text/plain")) == 0)
        to_answer_first_line(answer, words, sizeof(words));
    snprintf(buf, size, "HTTP %ld%s%s", status, words[0] == '\0' ? "" : ": ", words);
    return buf;
}
