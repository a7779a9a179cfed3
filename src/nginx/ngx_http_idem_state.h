
/*
 * The states of a guarded request, and of the response that it gets. Plain C:
 * tests/nginx/state_test.c walks the tables without nginx.
 *
 * The request, from the left to the right:
 *
 *     START ─> READING ─> SIGNING ─> CLAIMING ─> ANSWERED ─> RUNNING ─> STORING ─> READY ─> SENT
 *
 * Short cuts, and what a probe adds:
 *
 *     START    ─> CLAIMING   a sweep's probe, which has no client
 *     READING  ─> CLAIMING   no signature is required
 *     READING  ─> ANSWERED   refused before the store was asked; so from SIGNING
 *     ANSWERED ─> CLAIMING   an uncertain record is taken over by a prober
 *     ANSWERED ─> PROBING ─> PROBED
 *     PROBED   ─> ANSWERED   it never happened: it runs
 *     PROBED   ─> SETTLING   the outcome is handed over; so from ANSWERED if the probe
 *                            is impossible
 *     SETTLING ─> ANSWERED   the store has confirmed it
 *     RUNNING  ─> READY      the store is not waited for
 *     RUNNING  ─> SENT       the response is not held (shadow mode, an open guard)
 *     all      ─> PASSED     not guarded, or not guarded any longer: a response of our
 *                            own, a post_action
 *
 * The response, from a backend or to a probe:
 *
 *     SILENT ─> HEAD ─> WHOLE
 *                └────> CUT      by the backend, or because we cancelled it
 *
 *     HEAD, WHOLE ─> SILENT      a probe got 404: the run's response starts over
 */

#ifndef IDEM_NGINX_NGX_HTTP_IDEM_STATE_H
#define IDEM_NGINX_NGX_HTTP_IDEM_STATE_H


typedef enum {
    NGX_HTTP_IDEM_START = 0,
    NGX_HTTP_IDEM_READING,                  /* the body */
    NGX_HTTP_IDEM_SIGNING,                  /* the store is asked if the nonce is new */
    NGX_HTTP_IDEM_CLAIMING,                 /* the store is asked for the key */
    NGX_HTTP_IDEM_ANSWERED,                 /* there is a decision */
    NGX_HTTP_IDEM_PROBING,                  /* the backend is asked for the outcome */
    NGX_HTTP_IDEM_PROBED,                   /* it has responded, or failed to */
    NGX_HTTP_IDEM_SETTLING,                 /* a probe's outcome is handed to the store */
    NGX_HTTP_IDEM_RUNNING,
    NGX_HTTP_IDEM_STORING,                  /* the run's outcome is handed to the store */
    NGX_HTTP_IDEM_READY,                    /* no longer held, stored or not; nothing is out */
    NGX_HTTP_IDEM_SENT,                     /* the head has gone out; the rest passes */
    NGX_HTTP_IDEM_PASSED,
    NGX_HTTP_IDEM_STATES                    /* their number */
} ngx_http_idem_state_e;


typedef enum {
    NGX_HTTP_IDEM_SILENT = 0,
    NGX_HTTP_IDEM_HEAD,
    NGX_HTTP_IDEM_WHOLE,                    /* up to its end, without a gap */
    NGX_HTTP_IDEM_CUT,
    NGX_HTTP_IDEM_ARRIVED                   /* their number */
} ngx_http_idem_arrived_e;


/* 1 if the table has this move. A state may always be set again. */
int ngx_http_idem_state_allows(ngx_http_idem_state_e from, ngx_http_idem_state_e to);
int ngx_http_idem_state_allows_arrived(ngx_http_idem_arrived_e from, ngx_http_idem_arrived_e to);

/* In lower case, for logs. */
const char *ngx_http_idem_state_name(ngx_http_idem_state_e state);
const char *ngx_http_idem_state_arrived_name(ngx_http_idem_arrived_e arrived);


#endif /* IDEM_NGINX_NGX_HTTP_IDEM_STATE_H */
