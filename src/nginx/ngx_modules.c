
/*
 * nginx's own build generates this file for a dynamic module: the module's name,
 * and its place among the filters. Between copy and headers: see
 * ngx_http_idem_capture.c.
 */

#include <ngx_config.h>
#include <ngx_core.h>


extern ngx_module_t  ngx_http_idem_module;


ngx_module_t  *ngx_modules[] = {
    &ngx_http_idem_module,
    NULL
};


char  *ngx_module_names[] = {
    "ngx_http_idem_module",
    NULL
};


char  *ngx_module_order[] = {
    "ngx_http_idem_module",
    "ngx_http_copy_filter_module",
    NULL
};
