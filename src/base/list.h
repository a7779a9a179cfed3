/*
 * Lists that run through their elements. An element has `next`, and `link`: the address of the
 * pointer to it, which is the list's `first` or the `next` before it. So it can be removed without
 * its list. `link` is NULL while it is in no list.
 *
 * A list that is a queue also has `end`: the address of the pointer behind its last element.
 */
#ifndef IDEM_BASE_LIST_H
#define IDEM_BASE_LIST_H

#include <stddef.h>

/* Inserts an element before *at: &first, or an element's &next. */
#define idem_link_insert(at, element)                                                              \
    do {                                                                                           \
        typeof(*(at)) inserted_ = (element), *at_ = (at);                                          \
        inserted_->next = *at_;                                                                    \
        inserted_->link = at_;                                                                     \
        if (*at_ != NULL)                                                                          \
            (*at_)->link = &inserted_->next;                                                       \
        *at_ = inserted_;                                                                          \
    } while (0)

#define idem_link_remove(element)                                                                  \
    do {                                                                                           \
        typeof(element) removed_ = (element);                                                      \
        *removed_->link = removed_->next;                                                          \
        if (removed_->next != NULL)                                                                \
            removed_->next->link = removed_->link;                                                 \
        removed_->link = NULL;                                                                     \
    } while (0)

/* The same for a queue, whose `end` changes with the last element. */
#define idem_link_append(end, element)                                                             \
    do {                                                                                           \
        typeof(**(end)) appended_ = (element), **end_ = (end);                                     \
        appended_->next = NULL;                                                                    \
        appended_->link = *end_;                                                                   \
        **end_ = appended_;                                                                        \
        *end_ = &appended_->next;                                                                  \
    } while (0)

#define idem_link_remove_end(end, element)                                                         \
    do {                                                                                           \
        typeof(element) taken_ = (element);                                                        \
        if (taken_->next == NULL)                                                                  \
            *(end) = taken_->link;                                                                 \
        idem_link_remove(taken_);                                                                  \
    } while (0)

#endif
