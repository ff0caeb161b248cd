// SPDX-License-Identifier: MIT

import Deflate
import NIOCore
import NIOWebSocket

/// Makes whole messages of a link's frames, and decompresses them, one at a time: of what has come, only the message that is being dealt
/// with takes more memory than it took on the wire. Total.
struct LinkMessages {
  enum Message: Equatable {
    case text([UInt8])
    case ping(ByteBuffer)
    case close
    case other
  }

  /// Why a link ends: a WebSocket's close code.
  struct Failure: Error, Equatable {
    let code: WebSocketErrorCode
    static let malformed = Failure(code: .protocolError)
    static let damaged = Failure(code: .dataInconsistentWithMessage)
    static let tooLarge = Failure(code: .messageTooLarge)
  }

  /// Pieces of one message.
  private static let maxPieces = 1024

  private let most: Int
  private let inflater: Inflater?
  private let keepsContext: Bool
  private var opcode: WebSocketOpcode?
  private var isCompressed = false
  private var pieces = 0
  private var message: [UInt8] = []

  /// `most`: bytes of a message. `nil`: no memory.
  init?(most: Int, _ compression: PerMessageDeflate?) {
    self.most = most
    keepsContext = compression?.clientKeepsContext ?? true
    guard let compression else {
      inflater = nil
      return
    }
    guard
      let inflater = Inflater(
        windowBits: compression.clientBits, dictionary: compression.hasDictionary ? LinkDictionary.fromGateway : [])
    else { return nil }
    self.inflater = inflater
  }

  /// `nil`: more frames belong to it.
  mutating func take(_ frame: WebSocketFrame) throws(Failure) -> Message? {
    guard !frame.rsv2, !frame.rsv3 else { throw .malformed }
    switch frame.opcode {
    case .text, .binary:
      guard opcode == nil, !frame.rsv1 || inflater != nil else { throw .malformed }
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
    if isCompressed, let inflater {
      do throws(InflateFailure) {
        try inflater.append(data.readableBytesView, to: &message, limit: most)
        if frame.fin { try inflater.finish(into: &message, limit: most) }
      } catch {
        throw error == .tooLarge ? .tooLarge : .damaged
      }
      if frame.fin, !keepsContext { inflater.reset() }
    } else {
      guard data.readableBytes <= most - message.count else { throw .tooLarge }
      message.append(contentsOf: data.readableBytesView)
    }
    guard frame.fin else { return nil }
    defer { (opcode, message) = (nil, []) }
    return opcode == .text ? .text(message) : .other
  }
}

/// Compresses what the hub sends over a link, in the order in which it goes out.
final class LinkCompressor: ChannelOutboundHandler {
  typealias OutboundIn = WebSocketFrame
  typealias OutboundOut = WebSocketFrame

  /// 1 KiB of context, for messages that are alike: 12 KiB a link with all that belongs to it.
  static let windowBits = 10
  /// Of what a gateway sends there is more: 11 KiB a link.
  static let gatewayWindowBits = 12
  private static let memoryLevel = 2
  /// Shorter messages go out as they are.
  private static let compressedFrom = 16

  private let deflater: Deflater
  private let keepsContext: Bool

  /// `nil`: no memory.
  init?(_ compression: PerMessageDeflate) {
    guard
      let deflater = Deflater(
        windowBits: compression.serverBits, memoryLevel: Self.memoryLevel,
        dictionary: compression.hasDictionary ? LinkDictionary.fromHub : [])
    else { return nil }
    self.deflater = deflater
    keepsContext = compression.serverKeepsContext
  }

  func write(context: ChannelHandlerContext, data: NIOAny, promise: EventLoopPromise<Void>?) {
    var frame = unwrapOutboundIn(data)
    if frame.opcode == .text, frame.fin, frame.data.readableBytes >= Self.compressedFrom {
      frame.data = ByteBuffer(bytes: deflater.message(Array(frame.data.readableBytesView)))
      frame.rsv1 = true
      if !keepsContext { deflater.reset() }
    }
    context.write(wrapOutboundOut(frame), promise: promise)
  }
}
