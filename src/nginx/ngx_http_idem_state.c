
/*
 * The moves that ngx_http_idem_state.h draws. Only two functions set a state, and
 * refuse all other moves: ngx_http_idem_ctx_set_state() and
 * ngx_http_idem_capture_set_arrived().
 */

#include "ngx_http_idem_state.h"


#define TO(state)  (1u << NGX_HTTP_IDEM_ ## state)


typedef struct {
    const char  *name;
    unsigned     to;
} ngx_http_idem_state_moves_t;


static const ngx_http_idem_state_moves_t  ngx_http_idem_state_moves[NGX_HTTP_IDEM_STATES] = {

    [NGX_HTTP_IDEM_START] = { "start", TO(READING) | TO(CLAIMING) | TO(PASSED) },

    [NGX_HTTP_IDEM_READING] = { "reading",
        TO(SIGNING) | TO(CLAIMING) | TO(ANSWERED) | TO(PASSED) },

    [NGX_HTTP_IDEM_SIGNING] = { "signing", TO(CLAIMING) | TO(ANSWERED) | TO(PASSED) },

    [NGX_HTTP_IDEM_CLAIMING] = { "claiming", TO(ANSWERED) | TO(PASSED) },

    [NGX_HTTP_IDEM_ANSWERED] = { "answered",
        TO(CLAIMING) | TO(PROBING) | TO(SETTLING) | TO(RUNNING) | TO(PASSED) },

    [NGX_HTTP_IDEM_PROBING] = { "probing", TO(PROBED) | TO(PASSED) },

    [NGX_HTTP_IDEM_PROBED] = { "probed", TO(ANSWERED) | TO(SETTLING) | TO(PASSED) },

    [NGX_HTTP_IDEM_SETTLING] = { "settling", TO(ANSWERED) | TO(PASSED) },

    [NGX_HTTP_IDEM_RUNNING] = { "running", TO(STORING) | TO(READY) | TO(SENT) | TO(PASSED) },

    [NGX_HTTP_IDEM_STORING] = { "storing", TO(READY) | TO(PASSED) },

    [NGX_HTTP_IDEM_READY] = { "ready", TO(SENT) | TO(PASSED) },

    [NGX_HTTP_IDEM_SENT] = { "sent", TO(PASSED) },

    [NGX_HTTP_IDEM_PASSED] = { "passed", 0 },
};


static const ngx_http_idem_state_moves_t
ngx_http_idem_state_arrived_moves[NGX_HTTP_IDEM_ARRIVED] = {

    [NGX_HTTP_IDEM_SILENT] = { "silent", TO(HEAD) },

    [NGX_HTTP_IDEM_HEAD] = { "head", TO(WHOLE) | TO(CUT) | TO(SILENT) },

    [NGX_HTTP_IDEM_WHOLE] = { "whole", TO(SILENT) },

    [NGX_HTTP_IDEM_CUT] = { "cut", 0 },
};


int
ngx_http_idem_state_allows(ngx_http_idem_state_e from, ngx_http_idem_state_e to)
{
    return from == to || (ngx_http_idem_state_moves[from].to >> to & 1);
}


int
ngx_http_idem_state_allows_arrived(ngx_http_idem_arrived_e from, ngx_http_idem_arrived_e to)
{
    return from == to || (ngx_http_idem_state_arrived_moves[from].to >> to & 1);
}


const char *
ngx_http_idem_state_name(ngx_http_idem_state_e state)
{
    return ngx_http_idem_state_moves[state].name;
}


const char *
ngx_http_idem_state_arrived_name(ngx_http_idem_arrived_e arrived)
{
    return ngx_http_idem_state_arrived_moves[arrived].name;
}
