/*
 * The audit: one line when an operator's action begins and one with its result, the same from the
 * command line and from the gateway. Each line is a JSON object,
 *
 *     {"time":"2026-11-15T20:00:00.125Z","who":"ann","action":"settle","result":"done",...}
 *
 * which records the operator, the action, the time, and the state before and after. It holds no
 * key: a record is named by its hash and its label.
 */
#ifndef IDEM_CORE_AUDIT_H
#define IDEM_CORE_AUDIT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* In the order of the members. A text that is NULL or empty is left out, except `who`. */
struct idem_audit {
    int64_t time_ms;
    const char *who, *login; /* login: the user before sudo or su, if another */
    const char *address;
    const char *action; /* inspect, settle, forget, requeue */
    const char *result; /* begun; done; refused, failed: nothing was changed; unknown */
    const char *record, *prefix, *store;
    const char *broker, *queue; /* the message's target */
    const char *before;         /* states of the record */
    uint32_t attempt;           /* before; 0: none */
    const char *after;
    int32_t status; /* after the action; 0: none */
    bool force;
    const char *label, *reason;
    const char *refused; /* the reason of a refusal */
};

/* The `result` of an action whose store operation returned `code`: 0 or an error's code. */
const char *idem_audit_result(int code);

/* Writes the line and its line feed. `max` bounds each text as written; a longer text is cut
   and ends in dots. */
void idem_audit_write(const struct idem_audit *audit, size_t max, FILE *out);

#endif
