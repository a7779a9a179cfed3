/*
 * Entries that are deleted or trimmed before they are finished. Then our copy is the only one.
 * A message that is out is handled as usual. The content of a delayed one is kept, up to
 * STREAM_KEPT_BYTES in all, and delivered from here. If it cannot stay here, it is put among
 * the dead letters (stream_ack.c). Without our copy it is lost. Both cases are reported.
 */
#include "queue/stream/stream.h"

bool stream_trimmed_keep(struct stream_entry *entry, struct stream_message *message, bool anyway) {
    struct stream_link *link = entry->owner;

    if (!anyway && link->kept_bytes + message->bytes > STREAM_KEPT_BYTES)
        return false;
    entry->kept = message;
    message->keeper = entry;
    link->kept_bytes += message->bytes;
    return true;
}

/* If the message has a pending request, the report of that request frees it. */
static struct stream_message *entry_take_kept(struct stream_entry *entry) {
    struct stream_message *message = entry->kept;

    entry->kept = NULL;
    message->keeper = NULL;
    entry->owner->kept_bytes -= message->bytes;
    return message;
}

void stream_trimmed_drop(struct stream_entry *entry) {
    struct stream_message *message;

    if (entry->kept == NULL)
        return;
    message = entry_take_kept(entry);
    if (message->aside)
        stream_message_free(message);
}

bool stream_trimmed_deliver(struct stream_entry *entry) {
    struct stream_message *message = entry->kept;

    if (message == NULL || !message->aside)
        return message != NULL;
    message = entry_take_kept(entry);
    message->aside = message->dismissed = message->delayed = false;
    message->base.owner = NULL;
    message->base.redelivered = true;
    stream_notify_message(entry, message);
    return true;
}

bool stream_trimmed_report(struct stream_link *link, struct stream_id id) {
    struct stream_entry *entry = stream_entry_find(link, id);
    bool here = entry != NULL && (entry->message != NULL || entry->kept != NULL);
    char text[STREAM_ID_TEXT];

    if (entry != NULL && (entry->state == STREAM_ACKING || entry->state == STREAM_ACKED))
        return false; /* it is finished */
    if (entry != NULL && entry->deleted)
        return here;
    if (entry != NULL)
        entry->deleted = true;
    link->deleted_n++;
    stream_notify_state(
        link,
        "%s: entry %s was deleted or trimmed before it was done with, %s (%llu so far); "
        "trim by XTRIM MINID, and not past the oldest that XPENDING shows",
        link->queue, stream_id_print(id, text), here ? "and is handled from memory" : "and is lost",
        (unsigned long long)link->deleted_n);
    return here;
}
