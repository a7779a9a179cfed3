/*
 * Parses a worker's response, and writes its request. Parsing is strict: a misread response
 * would settle a message wrongly, so any other output ends the worker
 * (fuzz/handler_answer_fuzz.c).
 */
#include "queue/handler/handler_answer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/chars.h"
#include "base/error.h"
#include "base/units.h"
#include "base/visible.h"
#include "queue/handler/handler_json.h"
#include "queue/handler/handler_open.h"
#include "json/json.h"

/* Memory limit for the tree of the longest line. */
#define ROOM ((size_t)64 * HANDLER_ANSWER_MAX)

const char *handler_words(const char *text, size_t len, char *buf, size_t size) {
    size_t out = idem_visible_copy(text, len, ' ', buf, size);

    while (out > 0 && buf[out - 1] == ' ')
        out--;
    buf[out] = '\0';
    return buf;
}

/* Members. Each reader returns 0 or IDEM_E_INVALID. */

static const struct idem_json *json_member(const struct idem_json *object, const char *name) {
    const struct idem_json *value = idem_json_get(object, name, strlen(name));

    return value == NULL || value->type == IDEM_JSON_NULL ? NULL : value;
}

static int answer_read_integer(const struct idem_json *value, int64_t min, int64_t max,
                               int64_t *ret) {
    bool negative = value->n > 0 && value->at.text[0] == '-';
    int64_t n;

    if (value->type != IDEM_JSON_NUMBER || !value->flag ||
        idem_count_parse(value->at.text + negative, value->n - negative, &n, NULL) < 0)
        return IDEM_E_INVALID;
    n = negative ? -n : n;
    if (n < min || n > max)
        return IDEM_E_INVALID;
    *ret = n;
    return 0;
}

/* Seconds with up to three decimals that count; longer delays are cut to a day. */
static int answer_read_seconds(const struct idem_json *value, int64_t *ret_ms) {
    const char *at = value->at.text, *end = at + value->n;
    int64_t ms = 0;

    for (; at < end && idem_is_digit(*at); at++)
        if (ms <= HANDLER_DELAY_MAX_MS)
            ms = 10 * ms + 1000 * (*at - '0');
    if (at < end && *at == '.') {
        at++;
        for (int64_t unit = 100; at < end && idem_is_digit(*at); at++, unit /= 10)
            ms += unit * (*at - '0');
    }
    if (at != end) /* an exponent, or a negative number */
        return IDEM_E_INVALID;
    *ret_ms = ms;
    return 0;
}

static int answer_read_delay(const struct idem_json *value, int64_t *ret_ms) {
    int64_t ms;
    int rc = IDEM_E_INVALID;

    if (value->type == IDEM_JSON_STRING)
        rc = idem_duration_parse(value->at.text, value->n, &ms, NULL);
    else if (value->type == IDEM_JSON_NUMBER)
        rc = answer_read_seconds(value, &ms);
    if (rc == 0)
        *ret_ms = ms > HANDLER_DELAY_MAX_MS ? HANDLER_DELAY_MAX_MS : ms;
    return rc;
}

static int answer_read_result(const struct idem_json *object, struct handler_answer *answer,
                              struct idem_error *err) {
    const struct idem_json *value = json_member(object, "result");
    int result;

    if (value == NULL)
        return idem_error_set(err, IDEM_E_INVALID, "the response has no \"result\"");
    if (value->type != IDEM_JSON_STRING ||
        !idem_word_find(handler_results, value->at.text, value->n, &result))
        return idem_error_set(err, IDEM_E_INVALID,
                              "the response's \"result\" is not done, retry, dead or unknown");
    answer->result = (enum queue_result)result;
    return 0;
}

static int answer_read_rest(const struct idem_json *object, struct handler_answer *answer,
                            struct idem_error *err) {
    const struct idem_json *delay = json_member(object, "delay"),
                           *status = json_member(object, "status");
    const struct idem_json *reason = json_member(object, "reason");
    int64_t number = 0;

    if (delay != NULL && answer_read_delay(delay, &answer->delay_ms) < 0)
        return idem_error_set(
            err, IDEM_E_INVALID,
            "the response's \"delay\" is neither a time (\"30s\") nor a number of "
            "seconds");
    if (status != NULL && answer_read_integer(status, INT32_MIN, INT32_MAX, &number) < 0)
        return idem_error_set(err, IDEM_E_INVALID,
                              "the response's \"status\" is no integer of 32 bits");
    answer->status = (int32_t)number;
    if (reason != NULL && reason->type != IDEM_JSON_STRING)
        return idem_error_set(err, IDEM_E_INVALID, "the response's \"reason\" is no string");
    if (reason != NULL)
        handler_words(reason->at.text, reason->n, answer->reason, sizeof(answer->reason));
    return 0;
}

static int answer_read_object(const struct idem_json *object, uint64_t id,
                              struct handler_answer *answer, struct idem_error *err) {
    const struct idem_json *value;
    int64_t number;
    int rc;

    if (object->type != IDEM_JSON_OBJECT)
        return idem_error_set(err, IDEM_E_INVALID, "the response is no JSON object");
    value = json_member(object, "id");
    if (value == NULL)
        return idem_error_set(err, IDEM_E_INVALID, "the response has no \"id\"");
    if (answer_read_integer(value, 0, INT64_MAX, &number) < 0 || (uint64_t)number != id)
        return idem_error_set(err, IDEM_E_INVALID, "the response has another \"id\"");
    rc = answer_read_result(object, answer, err);
    return rc < 0 ? rc : answer_read_rest(object, answer, err);
}

int handler_answer_parse(const char *line, size_t len, uint64_t id, struct handler_answer *ret,
                         struct idem_error *err) {
    struct handler_answer answer = {0};
    struct idem_error why;
    struct idem_arena arena;
    struct idem_json object;
    int rc;

    if (len > HANDLER_ANSWER_MAX)
        return idem_error_set(err, IDEM_E_INVALID, "the response is longer than %d bytes",
                              HANDLER_ANSWER_MAX);
    idem_arena_init(&arena, ROOM);
    rc = idem_json_parse(line, len, &arena, &object, &why);
    if (rc < 0)
        (void)idem_error_set(err, rc, "the response is no JSON: %.300s", why.text);
    else
        rc = answer_read_object(&object, id, &answer, err);
    idem_arena_free(&arena);
    if (rc == 0)
        *ret = answer;
    return rc;
}

/* The request. */

static void out_put_name(struct idem_out *out, const char *name) {
    idem_out_text(out, ",\"");
    idem_out_text(out, name);
    idem_out_text(out, "\":");
}

static void out_put_text(struct idem_out *out, const char *name, const char *text) {
    out_put_name(out, name);
    handler_json_text(out, text == NULL ? "" : text, text == NULL ? 0 : strlen(text));
}

static void out_put_bytes(struct idem_out *out, const char *name, const char *name_base64,
                          struct idem_bytes bytes) {
    bool text = bytes.len == 0 || idem_utf8_valid((const char *)bytes.at, bytes.len);

    out_put_name(out, text ? name : name_base64);
    if (text)
        handler_json_text(out, bytes.at, bytes.len);
    else
        handler_json_base64(out, bytes.at, bytes.len);
}

static void out_put_request(struct idem_out *out, const struct queue_run *run, uint64_t id,
                            const struct handler_fields *headers,
                            const struct handler_fields *properties) {
    const struct queue_message *message = run->message;
    char numbers[64];

    snprintf(numbers, sizeof(numbers), "{\"id\":%" PRIu64 ",\"attempt\":%" PRIu32, id,
             run->attempt);
    idem_out_text(out, numbers);
    out_put_bytes(out, "key", "key_base64", (struct idem_bytes){run->key, run->key_len});
    out_put_text(out, "key_hash", run->hash);
    out_put_text(out, "trace", run->trace);
    out_put_text(out, "queue", message->queue);
    out_put_name(out, "redelivered");
    idem_out_text(out, message->redelivered ? "true" : "false");
    out_put_name(out, "headers");
    handler_json_fields(out, headers);
    out_put_name(out, "properties");
    handler_json_fields(out, properties);
    out_put_bytes(out, "body", "body_base64", message->body);
    idem_out_text(out, "}\n");
}

static char *answer_make_request(const struct queue_run *run, uint64_t id,
                                 const struct handler_fields *headers,
                                 const struct handler_fields *properties, size_t *ret_len) {
    struct idem_out out = {0};

    out_put_request(&out, run, id, headers, properties);
    if (!idem_out_allocate(&out))
        return NULL;
    out_put_request(&out, run, id, headers, properties);
    *ret_len = out.len;
    return out.buf;
}

char *handler_request_line(const struct queue_run *run, uint64_t id, size_t *ret_len) {
    const struct queue_message *message = run->message;
    struct handler_fields headers, properties = {0};
    char *line = NULL;

    if (handler_fields_init(&headers, message->headers, message->headers_n) &&
        handler_fields_init(&properties, message->properties, message->properties_n))
        line = answer_make_request(run, id, &headers, &properties, ret_len);
    handler_fields_release(&headers);
    handler_fields_release(&properties);
    return line;
}
