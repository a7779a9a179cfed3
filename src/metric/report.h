/*
 * A board as others read it: Prometheus' text, and JSON for programs and for the page.
 */
#ifndef IDEM_METRIC_REPORT_H
#define IDEM_METRIC_REPORT_H

#include <stdio.h>

#include "http/field.h"
#include "metric/board.h"

/* The forms that a board has: the page asks for JSON itself, and draws it. */
enum report_form { REPORT_TEXT, REPORT_JSON, REPORT_PAGE, REPORT_FORMS };

/* Which one is asked for: by `format=` in the query (prometheus, json, html), else by Accept; a
   browser gets the page, and who does not say gets text. False: there is no such format. */
bool report_form(struct idem_http_text query, const struct idem_http_accept *accept,
                 enum report_form *ret);
const char *report_type(enum report_form form); /* Content-Type */

/* Whose board it is, and for whom: `door` is http or queue; the token is given to who may change
   records, NULL: nobody may. */
struct report_who {
    const char *door, *token;
};

/* Writes it. The stream keeps what goes wrong. */
void report_write(const struct board *board, const struct report_who *who, enum report_form form,
                  FILE *out);

/* What the page may do, for Content-Security-Policy: its own style and script and nothing else.
   Borrowed; NULL without a hash function. */
const char *report_page_policy(void);

/* text.c, json.c. */
void report_text(const struct board *board, const struct report_who *who, FILE *out);
void report_json(const struct board *board, const struct report_who *who, FILE *out);

#endif
