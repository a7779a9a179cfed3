/*
 * Writes the audit. Cannot fail; the stream may.
 */
#include "core/audit.h"

#include "core/when.h"
#include "idem.h"
#include "json/out.h"

const char *idem_audit_result(int code) {
    switch (code) {
    case 0:
        return "done";
    case IDEM_E_ABSENT:
    case IDEM_E_LIVE:
    case IDEM_E_SETTLED:
        return "refused";
    case IDEM_E_UNKNOWN:
        return "unknown";
    default:
        return "failed";
    }
}

static void text_write(struct json_out *json, const char *name, const char *text, size_t max) {
    if (text != NULL && text[0] != '\0')
        json_out_cut(json, name, text, max);
}

void idem_audit_write(const struct idem_audit *audit, size_t max, FILE *out) {
    struct json_out json = {.out = out};
    char when[IDEM_WHEN_TEXT];

    json_out_open(&json, NULL);
    json_out_text(&json, "time", idem_when_print(audit->time_ms, when, sizeof(when)));
    json_out_cut(&json, "who", audit->who, max); /* nobody is an answer, too */
    text_write(&json, "login", audit->login, max);
    text_write(&json, "address", audit->address, max);
    text_write(&json, "action", audit->action, max);
    text_write(&json, "result", audit->result, max);
    text_write(&json, "record", audit->record, max);
    text_write(&json, "prefix", audit->prefix, max);
    text_write(&json, "store", audit->store, max);
    text_write(&json, "broker", audit->broker, max);
    text_write(&json, "queue", audit->queue, max);
    text_write(&json, "before", audit->before, max);
    if (audit->attempt != 0)
        json_out_uint(&json, "attempt", audit->attempt);
    text_write(&json, "after", audit->after, max);
    if (audit->status != 0)
        json_out_int(&json, "status", audit->status);
    if (audit->force)
        json_out_bool(&json, "force", true);
    text_write(&json, "label", audit->label, max);
    text_write(&json, "reason", audit->reason, max);
    text_write(&json, "refused", audit->refused, max);
    json_out_line(&json);
}
