/*
 * Writes JSON to a stream. It keeps no errors of its own: the stream has them.
 */
#include "json/out.h"

#include <inttypes.h>
#include <string.h>

#include "core/units.h"

static void char_write(FILE *out, uint32_t c, const char *bytes, size_t n) {
    if (c == '"' || c == '\\')
        fprintf(out, "\\%c", (int)c);
    else if (c == '\n')
        fputs("\\n", out);
    else if (idem_utf8_is_control(c) || c == 0x2028 || c == 0x2029)
        /* C1 and the two separators are legal in JSON, but not in every terminal or script. */
        fprintf(out, "\\u%04" PRIx32, c);
    else
        fwrite(bytes, 1, n, out);
}

void json_out_string(FILE *out, const char *bytes, size_t len) {
    uint32_t c = 0;
    size_t n;

    fputc('"', out);
    for (size_t at = 0; at < len; at += n) {
        n = idem_utf8_next(bytes + at, len - at, &c);
        if (n != 0) {
            char_write(out, c, bytes + at, n);
        } else {
            fputs("\\ufffd", out);
            n = 1;
        }
    }
    fputc('"', out);
}

static void member(struct json_out *json, const char *name) {
    if (json->more)
        fputc(',', json->out);
    json->more = true;
    if (name == NULL)
        return;
    json_out_string(json->out, name, strlen(name));
    fputc(':', json->out);
}

void json_out_open(struct json_out *json, const char *name) {
    member(json, name);
    fputc('{', json->out);
    json->more = false;
}

void json_out_close(struct json_out *json) {
    fputc('}', json->out);
    json->more = true;
}

void json_out_line(struct json_out *json) {
    fputs("}\n", json->out);
    json->more = false;
}

void json_out_text(struct json_out *json, const char *name, const char *text) {
    member(json, name);
    json_out_string(json->out, text, strlen(text));
}

void json_out_int(struct json_out *json, const char *name, int64_t value) {
    member(json, name);
    fprintf(json->out, "%" PRId64, value);
}

void json_out_uint(struct json_out *json, const char *name, uint64_t value) {
    member(json, name);
    fprintf(json->out, "%" PRIu64, value);
}

void json_out_bool(struct json_out *json, const char *name, bool value) {
    member(json, name);
    fputs(value ? "true" : "false", json->out);
}

void json_out_null(struct json_out *json, const char *name) {
    member(json, name);
    fputs("null", json->out);
}

void json_out_list(struct json_out *json, const char *name) {
    member(json, name);
    fputc('[', json->out);
    json->more = false;
}

void json_out_list_end(struct json_out *json) {
    fputc(']', json->out);
    json->more = true;
}
