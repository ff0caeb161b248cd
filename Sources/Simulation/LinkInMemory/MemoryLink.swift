// SPDX-License-Identifier: MIT

import Companion
import EventLoop
import Transport
import VirtualRadio

/// Transfers frames between the gateway and a virtual radio, and can be cut after a number of them.
public final class MemoryLink: Link {
  private var radio: VirtualRadio
  private let loop: EventLoop
  private var decoder = SerialDecoder(.toRadio)
  /// The number of the connection: frames in transit at a cut are lost.
  private var present = 0
  private var isOpen = false
  /// The link returns as soon as the gateway waits for it.
  public var returnsAtOnce = false
  /// The number of bytes from the radio until the link cuts itself, within a frame as well.
  public var bytesUntilCut: Int?
  /// The number of frames, in either direction, until the link cuts itself.
  public var framesUntilCut: Int?
  public private(set) var cuts = 0
  /// Replies of the radio that were lost with the link.
  public private(set) var lost: [Reply] = []
  public private(set) var messagesDelivered = 0
  /// Called with each message that the radio hands over, and has forgotten.
  public var onMessage: (QueuedMessage) -> Void = { _ in }
  public var onCut: () -> Void = {}
  public var onCommand: (Command) -> Void = { _ in }
  /// Commands that the radio answers with an error.
  public var refuses: (Command) -> Bool = { _ in false }
  /// Commands that the radio does not get.
  public var swallows: (Command) -> Bool = { _ in false }
  /// Replies that are lost.
  public var losesReply: (Reply) -> Bool = { _ in false }
  /// Replies that arrive twice.
  public var doublesReply: (Reply) -> Bool = { _ in false }
  /// The radio's next reply arrives twice, is lost, or arrives behind the frame after it.
  public var doublesNext = false
  public var losesNext = false
  public var swapsNext = false
  private var overtaken: [UInt8]?
  /// No bytes pass in either direction.
  public var isSilent = false
  /// The radio's next frame is cut in the middle.
  public var halvesNext = false
  /// The radio's next reply belongs to another question.
  public var falsifiesNext = false
  /// Frames from the radio wait until this is false again.
  public var isHeldUp = false {
    didSet { if !isHeldUp { for frame in heldUp { carry(frame) } } }
  }
  private var heldUp: [[UInt8]] = []
  /// Whether a radio is at the end of the link. A change wakes the tasks that wait for its return.
  public var isPresent = true {
    didSet {
      if !isPresent { cut() }
      if isPresent, !oldValue { loop.later(whenBack) }
    }
  }
  private var whenBack: () -> Void = {}
  public let name = "memory"
  public var onEvent: (LinkEvent) -> Void = { _ in }

  public init(_ radio: VirtualRadio, on loop: EventLoop) {
    self.radio = radio
    self.loop = loop
    listen()
  }

  private func listen() {
    radio.output = { [weak self] frame in
      guard let self else { return }
      if self.isHeldUp { self.heldUp.append(frame) } else { self.carry(frame) }
    }
  }

  public func plug(_ other: VirtualRadio) {
    radio.output = nil
    isPresent = false
    radio = other
    listen()
    isPresent = true
  }

  /// Sends bytes to the gateway that no radio sends.
  public func say(_ bytes: [UInt8]) { if isOpen { onEvent(.bytes(bytes)) } }

  /// The gateway is dead: no more bytes pass.
  public func leave() {
    onEvent = { _ in }
    radio.output = nil
    close()
  }

  /// Delivers the frame in two pieces, as a serial line may.
  private func carry(_ frame: [UInt8]) {
    guard !isSilent else { return }
    var (frame, times) = (frame, 1)
    if falsifiesNext, let code = frame.first, code < 0x80 {
      falsifiesNext = false
      frame = Reply.battery(Battery(millivolts: 1)).encode()
    }
    if swapsNext {
      (swapsNext, overtaken) = (false, frame)
      return
    }
    // `try?`: an unreadable frame is no reply, and arrives once.
    let reply: Reply? = if case .reply(let found)? = try? RadioFrame(decoding: frame) { found } else { nil }
    if let reply {
      times = losesReply(reply) || losesNext ? 0 : doublesReply(reply) || doublesNext ? 2 : 1
      (losesNext, doublesNext) = (false, false)
    }
    let (connection, whole) = (present, SerialFraming.wrap(frame, .fromRadio))
    let bytes = halvesNext ? Array(whole.prefix(whole.count / 2)) : whole
    halvesNext = false
    for _ in 0..<times { loop.later { [weak self] in self?.deliver(reply, bytes, connection) } }
    if let late = overtaken {
      overtaken = nil
      carry(late)
    }
  }

  /// `reply`: what the bytes are; `nil`: no reply.
  private func deliver(_ reply: Reply?, _ bytes: [UInt8], _ connection: Int) {
    guard isOpen, present == connection else { return lose(reply) }
    let left = bytesUntilCut
    if let left {
      bytesUntilCut = left > bytes.count ? left - bytes.count : nil
      guard left >= bytes.count else {
        onEvent(.bytes(Array(bytes.prefix(left))))
        lose(reply)
        return cut()
      }
    }
    if case .message(let message)? = reply {
      messagesDelivered += 1
      onMessage(message)
    }
    onEvent(.bytes(Array(bytes.prefix(2))))
    onEvent(.bytes(Array(bytes.dropFirst(2))))
    if left == bytes.count { return cut() }
    count()
  }

  private func lose(_ reply: Reply?) { if let reply { lost.append(reply) } }

  public func open() {
    whenBack = {}
    guard isPresent else {
      return loop.later { [weak self] in self?.onEvent(.down(.noSuchDevice("memory"))) }
    }
    isOpen = true
    present += 1
    decoder.reset()
    loop.later { [weak self] in self?.onEvent(.up) }
  }

  public func close() { (isOpen, whenBack) = (false, {}) }

  public func send(_ bytes: [UInt8]) {
    guard isOpen, !isSilent else { return }
    decoder.append(bytes, now: loop.now)
    while let frame = decoder.next(now: loop.now) {
      // `try?`: the radio judges what is no command.
      if let command = try? Command(decoding: frame) {
        onCommand(command)
        if swallows(command) { continue }
        if refuses(command) {
          carry(Reply.error(.badState).encode())
          continue
        }
      }
      loop.later { [radio] in radio.received(frame) }
      count()
    }
  }

  public func watchForReturn(_ action: @escaping () -> Void) {
    if returnsAtOnce { loop.later(action) } else { whenBack = action }
  }

  private func count() {
    guard let left = framesUntilCut else { return }
    framesUntilCut = left > 1 ? left - 1 : nil
    if left <= 1 { cut() }
  }

  public func cut(_ error: LinkError = .unplugged("memory")) {
    guard isOpen else { return }
    onCut()
    isOpen = false
    cuts += 1
    loop.later { [weak self] in self?.onEvent(.down(error)) }
  }
}
