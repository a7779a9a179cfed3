/*
 * Finds the variables of nginx in a text, and follows them to the values that they are made of.
 * Variables may refer to themselves: the search ends after STEPS_MAX steps.
 */
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "cli/doctor/doctor_nginx.h"

#define NAME_MAX_LEN 100
#define STEPS_MAX 500

/* One search, with its number of steps. */
struct search {
    bool maps;
    bool (*is)(const char *name);
    unsigned steps;
};

static bool nginx_variable_find_in(const struct nginx_scope *scope, const char *text,
                                   struct search *search);

/* Searches the values of a variable in the nearest block that sets it. */
static bool nginx_variable_find_behind(const struct nginx_scope *scope, const char *name,
                                       struct search *search) {
    bool made = false;

    for (; scope != NULL && !made; scope = scope->outer)
        for (const struct nginx_set *set = scope->sets; set != NULL; set = set->next) {
            if (set->name[0] != '$' || strcasecmp(set->name + 1, name) != 0)
                continue;
            made = true;
            if ((search->maps || !set->map) && nginx_variable_find_in(scope, set->value, search))
                return true;
        }
    return false;
}

static bool nginx_variable_find_in(const struct nginx_scope *scope, const char *text,
                                   struct search *search) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
    char name[NAME_MAX_LEN + 1];
    size_t len;

    if (search->steps++ > STEPS_MAX)
        return false;
    for (const char *at = strchr(text, '$'); at != NULL; at = strchr(at + len, '$')) {
        at += at[1] == '{' ? 2 : 1;
        len = strspn(at, letters);
        snprintf(name, sizeof(name), "%.*s", (int)len, at);
        if (len > 0 && (search->is(name) || nginx_variable_find_behind(scope, name, search)))
            return true;
    }
    return false;
}

bool nginx_names(const struct nginx_scope *scope, const char *text, bool maps,
                 bool (*is)(const char *name)) {
    return nginx_variable_find_in(scope, text, &(struct search){maps, is, 0});
}

bool nginx_name_fits(const char *name, const char *const *patterns) {
    for (; *patterns != NULL; patterns++)
        if (fnmatch(*patterns, name, FNM_CASEFOLD) == 0)
            return true;
    return false;
}
