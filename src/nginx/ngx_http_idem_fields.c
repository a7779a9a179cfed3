
/*
 * Header fields of requests and responses: nginx keeps them in lists of several
 * parts.
 */

#include "ngx_http_idem.h"


void
ngx_http_idem_fields_begin(ngx_http_idem_fields_t *fields, ngx_list_t *list)
{
    fields->part = &list->part;
    fields->i = 0;
}


ngx_table_elt_t *
ngx_http_idem_fields_next(ngx_http_idem_fields_t *fields)
{
    ngx_table_elt_t  *elts;

    while (fields->part && fields->i >= fields->part->nelts) {
        fields->part = fields->part->next;
        fields->i = 0;
    }

    if (fields->part == NULL) {
        return NULL;
    }

    elts = fields->part->elts;

    return &elts[fields->i++];
}


ngx_uint_t
ngx_http_idem_fields_match(ngx_table_elt_t *header, ngx_str_t *name)
{
    return header->key.len == name->len
           && (ngx_memcmp(header->key.data, name->data, name->len) == 0
               || ngx_strncasecmp(header->key.data, name->data, name->len) == 0);
}


ngx_table_elt_t *
ngx_http_idem_fields_push(ngx_list_t *list, ngx_str_t *name, ngx_str_t *value)
{
    ngx_table_elt_t  *h;

    h = ngx_list_push(list);

    if (h) {
        ngx_memzero(h, sizeof(ngx_table_elt_t));

        h->hash = 1;
        h->key = *name;
        h->value = *value;
    }

    return h;
}


/* Returns the last field of that name, or NULL; *ret_n is the number of such fields. */

ngx_table_elt_t *
ngx_http_idem_fields_find(ngx_list_t *list, ngx_str_t *name, ngx_uint_t *ret_n)
{
    ngx_table_elt_t         *header, *found;
    ngx_http_idem_fields_t   fields;

    *ret_n = 0;
    found = NULL;

    ngx_http_idem_fields_begin(&fields, list);

    while ((header = ngx_http_idem_fields_next(&fields)) != NULL) {
        if (ngx_http_idem_fields_match(header, name)) {
            found = header;
            (*ret_n)++;
        }
    }

    return found;
}


/* Returns all fields of a request as one array. */

struct idem_http_header *
ngx_http_idem_fields_collect(ngx_http_request_t *r, size_t *n)
{
    ngx_list_part_t          *part;
    ngx_table_elt_t          *header;
    ngx_http_idem_fields_t    fields;
    struct idem_http_header  *headers;

    *n = 0;

    for (part = &r->headers_in.headers.part; part; part = part->next) {
        *n += part->nelts;
    }

    headers = ngx_palloc(r->pool, (*n + 1) * sizeof(struct idem_http_header));
    if (headers == NULL) {
        return NULL;
    }

    *n = 0;
    ngx_http_idem_fields_begin(&fields, &r->headers_in.headers);

    while ((header = ngx_http_idem_fields_next(&fields)) != NULL) {
        headers[*n].name = ngx_http_idem_text(&header->key);
        headers[*n].value = ngx_http_idem_text(&header->value);
        (*n)++;
    }

    return headers;
}


/* Reads the client's preferences from all Accept fields. */

void
ngx_http_idem_fields_accept(ngx_http_request_t *r, struct idem_http_accept *accept)
{
    ngx_str_t                name = ngx_string("Accept");
    ngx_table_elt_t         *header;
    ngx_http_idem_fields_t   fields;

    idem_http_accept_init(accept);
    ngx_http_idem_fields_begin(&fields, &r->headers_in.headers);

    while ((header = ngx_http_idem_fields_next(&fields)) != NULL) {
        if (ngx_http_idem_fields_match(header, &name)) {
            idem_http_accept_add(accept, ngx_http_idem_text(&header->value));
        }
    }
}
