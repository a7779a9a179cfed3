/*
 * What an endpoint answers, as far as it matters: when it wants the message again
 * (Retry-After), what came of it if it says so (Idem-Outcome), and what it says to
 * people. Nothing here fails: what is not understood is left aside.
 */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "cli/handler/answer.h"
#include "cli/handler/to.h"
#include "json/json.h"

static void text_keep(struct idem_http_text value, char *buf, size_t size) {
    if (value.len >= size)
        value.len = 0; /* none that we know is that long */
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
        text_keep(value, answer->retry_after, sizeof(answer->retry_after));
    else if (idem_http_same(name, IDEM_HTTP_TEXT("Date")))
        text_keep(value, answer->date, sizeof(answer->date));
    else if (idem_http_same(name, IDEM_HTTP_TEXT("Content-Type")))
        text_keep(value, answer->type, sizeof(answer->type));
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

static struct idem_http_text text_of(const char *text) {
    return (struct idem_http_text){text, strlen(text)};
}

int64_t to_answer_delay_ms(const struct to_answer *answer) {
    int64_t now = time(NULL), seconds = 0;

    /* By the endpoint's own clock, if it tells it: ours may differ. */
    (void)idem_http_date(text_of(answer->date), now, &now);
    (void)idem_http_retry_after(text_of(answer->retry_after), now, HANDLER_DELAY_MAX_MS / 1000,
                                &seconds);
    return 1000 * seconds;
}

/* The words of a problem (RFC 9457); false: there are none, or its body was longer than what was
   kept. */
static bool problem_words(const struct to_answer *answer, char *buf, size_t size) {
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
static void text_words(const struct to_answer *answer, char *buf, size_t size) {
    const char *end = memchr(answer->body, '\n', answer->body_len);

    handler_words(answer->body, end == NULL ? answer->body_len : (size_t)(end - answer->body), buf,
                  size);
}

const char *to_answer_reason(const struct to_answer *answer, long status, char *buf, size_t size) {
    char words[256] = "";

    if (idem_http_type_read(text_of(answer->type)) == IDEM_HTTP_JSON)
        (void)problem_words(answer, words, sizeof(words));
    else if (strncmp(answer->type, "text/plain", strlen("text/plain")) == 0)
        text_words(answer, words, sizeof(words));
    snprintf(buf, size, "HTTP %ld%s%s", status, words[0] == '\0' ? "" : ": ", words);
    return buf;
}
