// SPDX-License-Identifier: MIT

import ControlShapes
import JSON
import Store

/// Reactions to a message, as rows show them.
enum ReactionList {
  static func write(to target: ReactionTarget, _ store: Store, _ json: inout JSONWriter) {
    // If reactions cannot be read, the message is shown without them.
    let reactions = store.ifReadable { try store.reactions(to: target) } ?? []
    guard !reactions.isEmpty else { return }
    json.objects(Shape.Message().reactions, reactions) { reaction, json in
      json.field(Shape.Reaction().emoji, reaction.emoji)
      json.field(Shape.Reaction().sender, reaction.sender)
    }
  }
}
