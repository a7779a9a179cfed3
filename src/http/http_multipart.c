/*
 * Forms with files: iterates over the parts, and finds a field by name
 * (fuzz/http_multipart_fuzz.c).
 */
#include "http/http_multipart.h"

#include <string.h>

/* Parameters of Content-Type and of Content-Disposition. */

struct multipart_parameter {
    struct idem_http_text name, value; /* value: without its quotes */
};

static void multipart_text_skip(struct idem_http_text *text, size_t n) {
    text->at += n;
    text->len -= n;
}

static size_t multipart_text_span(struct idem_http_text text, const char *until) {
    size_t n = 0;

    while (n < text.len && strchr(until, text.at[n]) == NULL)
        n++;
    return n;
}

/* The length of a quoted text; `text` begins after its opening quote. A backslash escapes a
   quote: some clients write that, where browsers write %22. */
static size_t multipart_text_quoted_span(struct idem_http_text text) {
    size_t n = multipart_text_span(text, "\"");

    while (n > 0 && n < text.len && text.at[n] == '"' && text.at[n - 1] == '\\')
        n += 1 +
             multipart_text_span((struct idem_http_text){text.at + n + 1, text.len - n - 1}, "\"");
    return n;
}

/* Reads the next `; name=value` of *rest. 1: found; 0: no more; -1: malformed. */
static int multipart_parameter_next(struct idem_http_text *rest, struct multipart_parameter *ret) {
    size_t n;

    *rest = idem_http_trim(*rest);
    if (rest->len == 0)
        return 0;
    if (rest->at[0] != ';')
        return -1;
    multipart_text_skip(rest, 1);
    n = multipart_text_span(*rest, "=;\"");
    ret->name = idem_http_trim((struct idem_http_text){rest->at, n});
    if (n == rest->len || rest->at[n] != '=' || !idem_http_is_token(ret->name))
        return -1;
    multipart_text_skip(rest, n + 1);
    *rest = idem_http_trim(*rest);
    if (rest->len > 0 && rest->at[0] == '"') {
        multipart_text_skip(rest, 1);
        n = multipart_text_quoted_span(*rest);
        if (n == rest->len || rest->at[n] != '"')
            return -1;
        ret->value = (struct idem_http_text){rest->at, n};
        multipart_text_skip(rest, n + 1);
        return 1;
    }
    n = multipart_text_span(*rest, ";");
    ret->value = idem_http_trim((struct idem_http_text){rest->at, n});
    multipart_text_skip(rest, n);
    return 1;
}

/* True if the text before the parameters is `word`; *value is then the parameters. */
static bool multipart_type_is(struct idem_http_text *value, struct idem_http_text word) {
    size_t n = multipart_text_span(*value, ";");

    if (!idem_http_same(idem_http_trim((struct idem_http_text){value->at, n}), word))
        return false;
    multipart_text_skip(value, n);
    return true;
}

bool idem_http_delimiter_read(struct idem_http_text type, struct idem_http_delimiter *ret) {
    struct idem_http_text boundary = {0};
    struct multipart_parameter found;
    int rc;

    if (!multipart_type_is(&type, IDEM_HTTP_TEXT("multipart/form-data")))
        return false;
    while ((rc = multipart_parameter_next(&type, &found)) > 0) {
        if (!idem_http_same(found.name, IDEM_HTTP_TEXT("boundary")))
            continue;
        if (boundary.at != NULL)
            return false;
        boundary = found.value;
    }
    if (rc < 0 || boundary.len == 0 || boundary.len > IDEM_HTTP_BOUNDARY_MAX)
        return false;
    memcpy(ret->text, "\r\n--", 4);
    memcpy(ret->text + 4, boundary.at, boundary.len);
    ret->len = (uint8_t)(4 + boundary.len);
    return true;
}

/* The walk uses the algorithm of Knuth, Morris and Pratt, so that a piece may end anywhere. */

void idem_http_split_begin(struct idem_http_split *split,
                           const struct idem_http_delimiter *delimiter, idem_http_split_cb *take,
                           void *data) {
    const char *text = delimiter->text;
    uint8_t fits = 0;

    *split =
        (struct idem_http_split){.delimiter = *delimiter, .fits = 2, .take = take, .data = data};
    for (uint8_t i = 1; i < delimiter->len; i++) {
        while (fits > 0 && text[i] != text[fits])
            fits = split->back[fits - 1];
        fits = (uint8_t)(fits + (text[i] == text[fits]));
        split->back[i] = fits;
    }
}

/* Takes the next byte. Bytes that matched the delimiter and no longer do belong to the part. */
static void split_take_byte(struct idem_http_split *split, char byte) {
    const char *text = split->delimiter.text;
    uint8_t before = split->fits, fits = before;

    while (fits > 0 && text[fits] != byte)
        fits = split->back[fits - 1];
    if (before > fits)
        split->take(split->data, text, (size_t)(before - fits));
    if (text[fits] != byte)
        split->take(split->data, &byte, 1);
    else
        fits++;
    if (fits == split->delimiter.len) {
        split->take(split->data, NULL, 0);
        fits = 0;
    }
    split->fits = fits;
}

void idem_http_split_add(struct idem_http_split *split, const void *bytes, size_t len) {
    const char *at = bytes, *end = at + len, *cr;

    while (at < end) {
        if (split->fits > 0) {
            split_take_byte(split, *at++);
            continue;
        }
        cr = memchr(at, '\r', (size_t)(end - at));
        if (cr == NULL)
            cr = end;
        if (cr > at)
            split->take(split->data, at, (size_t)(cr - at));
        split->fits = cr < end;
        at = cr + (cr < end);
    }
}

void idem_http_split_end(struct idem_http_split *split) {
    if (split->fits > 0)
        split->take(split->data, split->delimiter.text, split->fits);
    split->fits = 0;
}

/* Fields. */

/* Returns the next line, without its end, and moves *rest past it. False if no line end follows. */
static bool multipart_line_next(struct idem_http_text *rest, struct idem_http_text *ret) {
    const char *end = memmem(rest->at, rest->len, "\r\n", 2);

    if (end == NULL)
        return false;
    *ret = (struct idem_http_text){rest->at, (size_t)(end - rest->at)};
    multipart_text_skip(rest, ret->len + 2);
    return true;
}

/* Reads a Content-Disposition. A malformed one could be the field in question. */
static enum idem_http_found multipart_disposition_is(struct idem_http_text value,
                                                     struct idem_http_text name) {
    enum idem_http_found is = IDEM_HTTP_NONE;
    struct multipart_parameter found;
    bool file = false;
    int rc;

    if (!multipart_type_is(&value, IDEM_HTTP_TEXT("form-data")))
        return IDEM_HTTP_NONE;
    while ((rc = multipart_parameter_next(&value, &found)) > 0) {
        if (idem_http_same(found.name, IDEM_HTTP_TEXT("filename")) ||
            idem_http_same(found.name, IDEM_HTTP_TEXT("filename*")))
            file = true;
        else if (idem_http_same(found.name, IDEM_HTTP_TEXT("name")) &&
                 idem_http_equal(found.value, name))
            is = IDEM_HTTP_ONCE;
    }
    if (rc < 0)
        return IDEM_HTTP_MALFORMED;
    return file ? IDEM_HTTP_NONE : is;
}

/* ONCE: the part is the field, and *part is its value. */
static enum idem_http_found multipart_part_is(struct idem_http_text *part,
                                              struct idem_http_text name) {
    enum idem_http_found is = IDEM_HTTP_NONE;
    struct idem_http_text line, field;
    size_t n;

    /* The rest of the delimiter's own line. */
    if (!multipart_line_next(part, &line) || idem_http_trim(line).len > 0)
        return IDEM_HTTP_MALFORMED;
    for (;;) {
        if (!multipart_line_next(part, &line))
            return IDEM_HTTP_MALFORMED;
        if (line.len == 0)
            return is;
        n = multipart_text_span(line, ":");
        field = (struct idem_http_text){line.at, n};
        if (n == line.len || !idem_http_same(field, IDEM_HTTP_TEXT("Content-Disposition")))
            continue;
        multipart_text_skip(&line, n + 1);
        if (is != IDEM_HTTP_NONE)
            return IDEM_HTTP_MALFORMED;
        is = multipart_disposition_is(line, name);
    }
}

/* Two dashes follow the last delimiter; data after it is ignored. */
static bool multipart_part_is_last(struct idem_http_text part) {
    return part.len >= 2 && memcmp(part.at, "--", 2) == 0;
}

/* Returns the bytes up to the next delimiter or the end, and moves *body past the delimiter. */
static struct idem_http_text multipart_part_next(struct idem_http_text *body,
                                                 const struct idem_http_delimiter *delimiter) {
    const char *end = memmem(body->at, body->len, delimiter->text, delimiter->len);
    struct idem_http_text part = *body;

    if (end == NULL) {
        *body = (struct idem_http_text){0};
        return part;
    }
    part.len = (size_t)(end - part.at);
    multipart_text_skip(body, part.len + delimiter->len);
    return part;
}

enum idem_http_found idem_http_multipart_find(struct idem_http_text body,
                                              const struct idem_http_delimiter *delimiter,
                                              struct idem_http_text name, char *out, size_t size,
                                              size_t *ret_len) {
    size_t first = (size_t)delimiter->len - 2, seen = 0, len = 0;
    struct idem_http_text part;

    if (body.len == 0)
        return IDEM_HTTP_NONE;
    if (body.len >= first && memcmp(body.at, delimiter->text + 2, first) == 0)
        multipart_text_skip(&body, first);
    else
        (void)multipart_part_next(&body,
                                  delimiter); /* data before the first delimiter is not a part */
    while (body.at != NULL) {
        part = multipart_part_next(&body, delimiter);
        if (multipart_part_is_last(part))
            break;
        switch (multipart_part_is(&part, name)) {
        case IDEM_HTTP_NONE:
            continue;
        case IDEM_HTTP_ONCE:
            seen++;
            len = part.len;
            if (len <= size && len > 0)
                memcpy(out, part.at, len);
            continue;
        default:
            return IDEM_HTTP_MALFORMED;
        }
    }
    if (seen != 1)
        return seen == 0 ? IDEM_HTTP_NONE : IDEM_HTTP_REPEATED;
    if (len > size)
        return IDEM_HTTP_TOO_LONG;
    *ret_len = len;
    return IDEM_HTTP_ONCE;
}
