// SPDX-License-Identifier: MIT

import Deflate
import NIOCore
import NIOWebSocket
import Synchronization

/// Assembles a link's frames into messages, and decompresses one message at a time. Between messages it keeps the context that later messages may
/// refer to. Any input is safe.
struct LinkMessageAssembler {
  enum Message: Equatable {
    case text([UInt8])
    case ping(ByteBuffer)
    case close
    case other
  }

  /// Why a link ends, as the WebSocket's close code.
  struct Failure: Error, Equatable {
    let code: WebSocketErrorCode
    /// For the gateway, in at most 123 bytes.
    var reason = ""
    static let malformed = Failure(code: .protocolError)
    static let damaged = Failure(code: .dataInconsistentWithMessage)
    static let tooLarge = Failure(code: .messageTooLarge)
    static let noMemory = Failure(code: .unexpectedServerError)
  }

  private static let maxPieces = 1024

  private let most: Int
  private let slot = SharedCompressors.randomSlot()
  private let keepsContext: Bool
  /// The end of the data that the gateway has sent; `nil`: nothing is compressed.
  private var context: LinkContext?
  private var opcode: WebSocketOpcode?
  private var isCompressed = false
  private var pieces = 0
  private var message: [UInt8] = []

  /// `most`: the largest message in bytes.
  init(most: Int, _ compression: PerMessageDeflate?) {
    self.most = most
    keepsContext = compression?.clientKeepsContext ?? true
    context = compression.map {
      LinkContext(reach: 1 << $0.clientBits, dictionary: $0.hasDictionary ? LinkDictionary.fromGateway : [])
    }
  }

  /// Adds a frame; `nil`: the message is not complete.
  mutating func take(_ frame: WebSocketFrame) throws(Failure) -> Message? {
    guard !frame.rsv2, !frame.rsv3 else { throw .malformed }
    switch frame.opcode {
    case .text, .binary:
      guard opcode == nil, !frame.rsv1 || context != nil else { throw .malformed }
      opcode = frame.opcode
      isCompressed = frame.rsv1
      pieces = 0
    case .continuation:
      guard opcode != nil, !frame.rsv1 else { throw .malformed }
    case .ping, .connectionClose, .pong:
      guard !frame.rsv1 else { throw .malformed }
      return frame.opcode == .ping ? .ping(frame.unmaskedData) : frame.opcode == .connectionClose ? .close : .other
    default: return .other
    }
    return try add(frame)
  }

  private mutating func add(_ frame: WebSocketFrame) throws(Failure) -> Message? {
    pieces += 1
    guard pieces <= Self.maxPieces else { throw .malformed }
    let data = frame.unmaskedData
    guard data.readableBytes <= mostOnWire - message.count else { throw .tooLarge }
    message.append(contentsOf: data.readableBytesView)
    guard frame.fin else { return nil }
    defer { (opcode, message) = (nil, []) }
    let whole = try decompressed()
    return opcode == .text ? .text(whole) : .other
  }

  /// Incompressible data grows by some bytes for each of its blocks.
  private var mostOnWire: Int { isCompressed ? most + most / 256 + 64 : most }

  private mutating func decompressed() throws(Failure) -> [UInt8] {
    guard isCompressed, let context else { return message }
    let inflated: [UInt8]?
    do throws(InflateFailure) {
      inflated = try SharedCompressors.inflated(message, behind: context, limit: most, slot)
    } catch {
      throw error == .tooLarge ? .tooLarge : .damaged
    }
    guard let plain = inflated else { throw .noMemory }
    if keepsContext { self.context?.add(plain) }
    return plain
  }
}

/// Compresses the messages that the hub sends over a link, in their order.
final class LinkCompressor: ChannelOutboundHandler {
  typealias OutboundIn = WebSocketFrame
  typealias OutboundOut = WebSocketFrame

  /// 1 KiB of context: messages to gateways resemble each other.
  static let windowBits = 10
  /// The window for messages from gateways, which are longer.
  static let gatewayWindowBits = 12
  /// Shorter messages are sent uncompressed.
  private static let compressedFrom = 16

  private let slot = SharedCompressors.randomSlot()
  private let windowBits: Int
  private let keepsContext: Bool
  /// The end of the data that the hub has sent.
  private var context: LinkContext

  init(_ compression: PerMessageDeflate) {
    windowBits = compression.serverBits
    keepsContext = compression.serverKeepsContext
    context = LinkContext(
      reach: Deflater.reach(windowBits: windowBits), dictionary: compression.hasDictionary ? LinkDictionary.fromHub : []
    )
  }

  func write(context channel: ChannelHandlerContext, data: NIOAny, promise: EventLoopPromise<Void>?) {
    var frame = unwrapOutboundIn(data)
    if frame.opcode == .text, frame.fin, frame.data.readableBytes >= Self.compressedFrom {
      let plain = Array(frame.data.readableBytesView)
      // Without memory the message is sent uncompressed, which is always allowed.
      if let packed = SharedCompressors.deflated(plain, behind: context, windowBits: windowBits, slot) {
        frame.data = ByteBuffer(bytes: packed)
        frame.rsv1 = true
        if keepsContext { context.add(plain) }
      }
    }
    channel.write(wrapOutboundOut(frame), promise: promise)
  }
}

/// zlib's states, which all links share: a link needs one only while it compresses or decompresses a message. There are several, so that links seldom
/// wait for each other.
enum SharedCompressors {
  private static let memoryLevel = 2
  private static let slotCount = 8

  private struct Deflating {
    var deflater: Deflater
    var windowBits: Int
  }

  private final class Slot: Sendable {
    let deflating = Mutex(Deflating?.none)
    let inflater = Mutex(Inflater?.none)
  }

  private static let slots = (0..<slotCount).map { _ in Slot() }

  static func randomSlot() -> Int { Int.random(in: 0..<slotCount) }

  /// `nil`: no memory.
  static func deflated(_ bytes: [UInt8], behind context: LinkContext, windowBits: Int, _ slot: Int) -> [UInt8]? {
    slots[slot].deflating.withLock { deflating in
      if deflating?.windowBits != windowBits {
        deflating = Deflater(windowBits: windowBits, memoryLevel: memoryLevel)
          .map { Deflating(deflater: $0, windowBits: windowBits) }
      }
      return deflating?.deflater.message(bytes, behind: context)
    }
  }

  /// `nil`: no memory.
  static func inflated(
    _ bytes: [UInt8], behind context: LinkContext, limit: Int, _ slot: Int
  ) throws(InflateFailure) -> [UInt8]? {
    try slots[slot].inflater.withLock { (inflater) throws(InflateFailure) in
      if inflater == nil { inflater = Inflater(windowBits: LinkCompressor.gatewayWindowBits) }
      return try inflater?.message(bytes, behind: context, limit: limit)
    }
  }
}
