/*
 * Intrusive lists and queues: an element is inserted and removed at each place, and may come back.
 */
#include "base/list.h"
#include "test.h"

struct element {
    struct element *next, **link;
    struct element *other_next, **other_link;
    char name;
};

static struct element a = {.name = 'a'}, b = {.name = 'b'}, c = {.name = 'c'};

/* The names in the list's order; each link is checked on the way. */
static const char *names(struct element **first) {
    static char text[8];
    size_t n = 0;

    for (struct element **at = first; *at != NULL; at = &(*at)->next) {
        CHECK((*at)->link == at);
        text[n++] = (*at)->name;
    }
    text[n] = '\0';
    return text;
}

TEST(the_last_one_inserted_is_the_first) {
    struct element *first = NULL;

    idem_link_insert(&first, &a);
    idem_link_insert(&first, &b);
    idem_link_insert(&b.next, &c);
    CHECK_STR(names(&first), "bca");
}

TEST(an_element_is_removed_from_any_place_and_knows_that_it_is_in_no_list) {
    static struct element *const all[] = {&a, &b, &c};
    static const char *const left[] = {"cb", "ca", "ba"};

    for (size_t i = 0; i < 3; i++) {
        struct element *first = NULL;

        for (size_t k = 0; k < 3; k++)
            idem_link_insert(&first, all[k]);
        idem_link_remove(all[i]);
        CHECK(all[i]->link == NULL);
        CHECK_STR(names(&first), left[i]);
    }
}

TEST(a_queue_keeps_the_order_and_its_end) {
    static struct element *const all[] = {&a, &b, &c};
    static const char *const left[] = {"bca", "acb", "abc"};

    for (size_t i = 0; i < 3; i++) {
        struct element *first = NULL, **end = &first;

        for (size_t k = 0; k < 3; k++)
            idem_link_append(&end, all[k]);
        CHECK_STR(names(&first), "abc");
        idem_link_remove_end(&end, all[i]);
        CHECK(all[i]->link == NULL);
        idem_link_append(&end, all[i]); /* it comes behind all others */
        CHECK_STR(names(&first), left[i]);
    }
}

TEST(a_queue_that_was_emptied_takes_elements_again) {
    struct element *first = NULL, **end = &first;

    idem_link_append(&end, &a);
    idem_link_remove_end(&end, &a);
    CHECK(first == NULL && end == &first);
    idem_link_append(&end, &b);
    CHECK_STR(names(&first), "b");
}

TEST(an_element_is_in_two_lists_at_a_time) {
    struct element *first = NULL, **end = &first, *other = NULL, **other_end = &other;

    idem_link_append(&end, &a);
    idem_link_append(&end, &b);
    idem_link_prepend_in(other_, &other, &other_end, &a);
    idem_link_append_in(other_, &other_end, &c);
    idem_link_prepend_in(other_, &other, &other_end, &b);
    CHECK_STR(names(&first), "ab");
    CHECK(other == &b && b.other_next == &a && a.other_next == &c && other_end == &c.other_next);
    idem_link_remove_end_in(other_, &other_end, &c);
    CHECK(c.other_link == NULL && other_end == &a.other_next);
    CHECK_STR(names(&first), "ab");
}

TEST_MAIN
