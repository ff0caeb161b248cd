// SPDX-License-Identifier: MIT

import Companion
import ControlShapes
import Messaging
import SQLite
import Store

/// `/v1/blocks…`: senders whose messages concern nobody here.
struct BlocksAPI {
  let dependencies: ControlAPI.Dependencies
  let conversations: ConversationsAPI
  private var store: Store { dependencies.store }
  private var addressing: Addressing { Addressing(store) }

  func list(_ reply: Reply) async throws -> Answer {
    var lines: [UInt8] = []
    for block in try store.blocks() { lines += try line(of: block) }
    return try await reply.rows(lines)
  }

  private func line(of block: Block) throws(StoreError) -> [UInt8] {
    let row = Shape.Block()
    switch block {
    case .key(let bytes):
      let contact = try PublicKey(bytes: bytes).flatMap { key throws(StoreError) in try store.contact(key) }
      return ControlAPI.line { json in
        json.field(row.key, Hex.string(bytes))
        json.field(row.name, contact?.contact.name.string)
      }
    case .name(let name, let digest):
      let channel = try store.nameOfChannel(digest)
      return ControlAPI.line { json in
        json.field(row.name, name)
        json.field(row.channel, digest)
        json.field(row.channelName, channel?.string)
      }
    }
  }

  func add(_ body: RequestBody, _ news: News) async throws -> Answer {
    let block = try named(body)
    if case .key(let bytes) = block, store.radioKey?.bytes.starts(with: bytes) == true {
      throw Refusal.invalid("whom: this is the key of the radio itself")
    }
    let blocks = try store.blocks()
    guard blocks.count < Store.maxBlocks || blocks.contains(where: { $0.isRow(block) }) else {
      throw Refusal.full("\(Store.maxBlocks) senders are blocked, which is the limit: see meshpost block list")
    }
    return try await change([block], isBlocked: true, news)
  }

  /// Removes each block that holds messages of this sender.
  func remove(_ body: RequestBody, _ news: News) async throws -> Answer {
    let wanted = try named(body)
    let held = try store.blocks().filter { $0.meets(wanted) }
    guard !held.isEmpty else { throw Refusal.notFound(.block(try body.string("whom"))) }
    return try await change(held, isBlocked: false, news)
  }

  /// A node, the beginning of a key or, with `channel`, a name on that channel.
  private func named(_ body: RequestBody) throws(Refusal) -> Block {
    let whom = try body.string("whom")
    guard let channel = try body.optional("channel") else { return try key(whom) }
    var digest = channel.lowercased()
    // A channel that the radio has left is named by its digest.
    if Hex.bytes(digest)?.count != 8 { digest = try addressing.channel(channel).secret.digest }
    guard let block = Block(name: whom, channel: digest) else {
      throw .invalid("whom: a name of at most \(Block.longestName) bytes is wanted")
    }
    return block
  }

  private func key(_ whom: String) throws(Refusal) -> Block {
    do {
      return .key(try addressing.contact(whom).contact.key.bytes)
    } catch {
      // The author of a room's post may be no known node.
      guard case .notFound = error, let block = Hex.bytes(whom).flatMap({ Block(key: $0) }) else { throw error }
      return block
    }
  }

  private func change(_ blocks: [Block], isBlocked: Bool, _ news: News) async throws -> Answer {
    try await conversations.prepareWithIndexes()
    var counted: [Store.Counted] = []
    try await store.save { store throws(SQLiteError) in
      for block in blocks {
        if isBlocked { try store.add(block) } else { try store.remove(block) }
        counted += try store.recountUnread(in: block.channel)
      }
    }
    for one in counted { conversations.tell(one.name, ofRadio: one.radio, news) }
    try await conversations.recount(news)
    return .done
  }
}
