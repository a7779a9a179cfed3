/*
 * The audit: a line for each thing that an operator begins, and one for what came of it, the same
 * from the command line and from the gateway. One JSON object,
 *
 *     {"time":"2026-11-15T20:00:00.125Z","who":"ann","action":"settle","result":"done",...}
 *
 * which tells who, what, when, before and after. No key is in it: a record is named by its hash,
 * and by its label.
 */
#ifndef IDEM_CORE_AUDIT_H
#define IDEM_CORE_AUDIT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* In the order of the members. A text that is NULL or empty is left out, but for `who`. */
struct idem_audit {
    int64_t time_ms;
    const char *who, *login; /* login: who was it before sudo or su, where that is another */
    const char *address;
    const char *action; /* inspect, settle, forget, requeue */
    const char *result; /* begun; done; refused, failed: nothing was changed; unknown */
    const char *record, *prefix, *store;
    const char *broker, *queue; /* where a message went */
    const char *before;         /* states */
    uint32_t attempt;           /* before; 0: none */
    const char *after;
    int32_t status; /* after; 0: none */
    bool force;
    const char *label, *reason;
    const char *refused; /* why it was */
};

/* By what the store has said of it: 0, or an error's code. */
const char *idem_audit_result(int code);

/* Writes it, with a line feed. `max`: of each text, as it is written; a longer one ends in dots. */
void idem_audit_write(const struct idem_audit *audit, size_t max, FILE *out);

#endif
