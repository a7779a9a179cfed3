/*
 * Writes one line of the audit. Cannot fail itself; the caller checks the stream.
 */
#include "core/audit.h"

#include "base/rfc3339.h"
#include "idem.h"
#include "json/json_out.h"

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

static void audit_write_text(struct json_out *json, const char *name, const char *text,
                             size_t max) {
    if (text != NULL && text[0] != '\0')
        json_out_cut(json, name, text, max);
}

void idem_audit_write(const struct idem_audit *audit, size_t max, FILE *out) {
    struct json_out json = {.out = out};
    char when[IDEM_RFC3339_TEXT];

    json_out_open(&json, NULL);
    json_out_text(&json, "time", idem_rfc3339_print(audit->time_ms, when, sizeof(when)));
    json_out_cut(&json, "who", audit->who, max); /* always a member, even if empty */
    audit_write_text(&json, "login", audit->login, max);
    audit_write_text(&json, "address", audit->address, max);
    audit_write_text(&json, "action", audit->action, max);
    audit_write_text(&json, "result", audit->result, max);
    audit_write_text(&json, "record", audit->record, max);
    audit_write_text(&json, "prefix", audit->prefix, max);
    audit_write_text(&json, "store", audit->store, max);
    audit_write_text(&json, "broker", audit->broker, max);
    audit_write_text(&json, "queue", audit->queue, max);
    audit_write_text(&json, "before", audit->before, max);
    if (audit->attempt != 0)
        json_out_uint(&json, "attempt", audit->attempt);
    audit_write_text(&json, "after", audit->after, max);
    if (audit->status != 0)
        json_out_int(&json, "status", audit->status);
    if (audit->force)
        json_out_bool(&json, "force", true);
    audit_write_text(&json, "label", audit->label, max);
    audit_write_text(&json, "reason", audit->reason, max);
    audit_write_text(&json, "refused", audit->refused, max);
    json_out_line(&json);
}
