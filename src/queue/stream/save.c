/*
 * Entries that are deleted or trimmed before they were done with. What we have of
 * them is then all there is: a message that is out is handled as if nothing had
 * happened, and of one that waits for its time the content is kept, up to
 * STREAM_KEPT_BYTES in all, and delivered from here. One that cannot stay here is
 * put among the dead letters (give.c). What we did not keep is lost; either is told.
 */
#include "queue/stream/stream.h"

bool stream_keep(struct stream_entry *entry, struct stream_message *message, bool anyway) {
    struct stream_link *link = entry->owner;

    if (!anyway && link->kept_bytes + message->bytes > STREAM_KEPT_BYTES)
        return false;
    entry->kept = message;
    message->keeper = entry;
    link->kept_bytes += message->bytes;
    return true;
}

/* Who still has to be told of something that was asked of it is freed by that. */
static struct stream_message *kept_take(struct stream_entry *entry) {
    struct stream_message *message = entry->kept;

    entry->kept = NULL;
    message->keeper = NULL;
    entry->owner->kept_bytes -= message->bytes;
    return message;
}

void stream_unkeep(struct stream_entry *entry) {
    struct stream_message *message;

    if (entry->kept == NULL)
        return;
    message = kept_take(entry);
    if (message->aside)
        stream_message_free(message);
}

bool stream_deliver_kept(struct stream_entry *entry) {
    struct stream_message *message = entry->kept;

    if (message == NULL || !message->aside)
        return message != NULL;
    message = kept_take(entry);
    message->aside = message->dismissed = message->delayed = false;
    message->base.owner = NULL;
    message->base.redelivered = true;
    stream_message_out(entry, message);
    return true;
}

bool stream_deleted(struct stream_link *link, struct stream_id id) {
    struct stream_entry *entry = stream_entry_find(link, id);
    bool here = entry != NULL && (entry->message != NULL || entry->kept != NULL);
    char text[STREAM_ID_TEXT];

    if (entry != NULL && (entry->state == STREAM_ACKING || entry->state == STREAM_ACKED))
        return false; /* it is done with */
    if (entry != NULL && entry->deleted)
        return here;
    if (entry != NULL)
        entry->deleted = true;
    link->deleted_n++;
    stream_say(link,
               "%s: entry %s was deleted or trimmed before it was done with, %s (%llu so far); "
               "trim by XTRIM MINID, and not past the oldest that XPENDING shows",
               link->queue, stream_id_print(id, text),
               here ? "and is handled from memory" : "and is lost",
               (unsigned long long)link->deleted_n);
    return here;
}
