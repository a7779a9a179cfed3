/*
 * Reports of a board: Prometheus text, and JSON for programs and for the page.
 */
#ifndef IDEM_METRIC_METRIC_REPORT_H
#define IDEM_METRIC_METRIC_REPORT_H

#include <stdio.h>

#include "http/http_field.h"
#include "metric/metric_board.h"

/* The forms of a report. The page requests JSON itself, and draws it. */
enum report_form { REPORT_TEXT, REPORT_JSON, REPORT_PAGE, REPORT_FORMS };

/* Selects the form by `format=` in the query (prometheus, json, html), else by Accept; a browser
   gets the page, and a client that states no preference gets text. False: unknown format. */
bool report_form(struct idem_http_text query, const struct idem_http_accept *accept,
                 enum report_form *ret);
const char *report_type(enum report_form form); /* Content-Type */

/* The context of a report: `door` is http or queue; `token` is for a client that may change
   records, NULL: it may not. */
struct report_origin {
    const char *door, *token;
};

/* Writes the report. The caller checks the stream for errors. */
void report_write(const struct board *board, const struct report_origin *origin,
                  enum report_form form, FILE *out);

/* The page's Content-Security-Policy: allows its own style and script and nothing else.
   Borrowed; NULL if a hash cannot be computed. */
const char *report_page_policy(void);

/* The forms of a report. */
void report_text(const struct board *board, const struct report_origin *origin, FILE *out);
void report_json(const struct board *board, const struct report_origin *origin, FILE *out);

#endif
