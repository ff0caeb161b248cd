// SPDX-License-Identifier: MIT

import JSON
import Store

/// Reactions to a message, as rows show them.
enum ReactionList {
  static func write(to target: ReactionTarget, _ store: Store, _ json: inout JSONWriter) {
    // If reactions cannot be read, the message is shown without them.
    let reactions = store.ifReadable { try store.reactions(to: target) } ?? []
    guard !reactions.isEmpty else { return }
    json.objects("reactions", reactions) { reaction, json in
      json.field("emoji", reaction.emoji)
      json.field("sender", reaction.sender)
    }
  }
}
