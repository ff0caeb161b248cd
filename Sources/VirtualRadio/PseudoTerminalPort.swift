// SPDX-License-Identifier: MIT

import CLinux
import EventLoop
import Glibc
import Timing

/// A pseudo-terminal that behaves like a radio's USB serial port, under a stable name.
public final class PseudoTerminalPort: RadioPort {
  private let link: String
  private var master: Int32 = -1
  private var slave: Int32 = -1
  private let isForgetful: Bool
  /// Interval of checking whether a program has the port open.
  private static let glance: Duration = .milliseconds(5)

  /// `link` is a symbolic link that is created again at each plugging in. `isForgetful`: like a real serial port, discards unread
  /// data when the last program closes it.
  public init(_ radio: VirtualRadio, on loop: EventLoop, link: String, isForgetful: Bool = false) throws {
    self.link = link
    self.isForgetful = isForgetful
    super.init(radio, on: loop, .serial)
    try plugIn()
    radio.onReboot = { [weak self] in self?.unplug(for: .seconds(1)) }
  }

  deinit { pullOut() }

  public override var address: String { "serial:\(link)" }

  private func plugIn() throws {
    master = posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC)
    guard master >= 0, grantpt(master) == 0, unlockpt(master) == 0, let name = Descriptor.terminalName(of: master)
    else {
      throw SystemError("posix_openpt")
    }
    // Kept open: without any open slave the master reads EIO, and the line settings are forgotten.
    slave = open(name, O_RDWR | O_NOCTTY | O_CLOEXEC)
    guard slave >= 0 else { throw SystemError("open \(name)") }
    var line = termios()
    tcgetattr(slave, &line)
    cfmakeraw(&line)
    tcsetattr(slave, TCSANOW, &line)
    let temporary = link + ".new"
    Glibc.unlink(temporary)
    if isForgetful { forgetWhenClosed(name) }
    guard symlink(name, temporary) == 0, rename(temporary, link) == 0 else { throw SystemError("symlink \(link)") }
    resetReceiver(.serial)
    loop.watch(master, for: .readable) { [weak self] readiness in self?.ready(readiness) }
  }

  /// The master reports this only if no other end is open: close ours for a moment to check.
  private func forgetWhenClosed(_ name: String) {
    loop.schedule(after: Self.glance) { [weak self] in
      guard let self, self.master >= 0 else { return }
      close(self.slave)
      var look = pollfd(fd: self.master, events: 0, revents: 0)
      let isAlone = poll(&look, 1, 0) > 0 && look.revents & Int16(POLLHUP) != 0
      self.slave = open(name, O_RDWR | O_NOCTTY | O_CLOEXEC)
      if isAlone { tcflush(self.slave, TCIFLUSH) }
      self.forgetWhenClosed(name)
    }
  }

  private func pullOut() {
    guard master >= 0 else { return }
    loop.unwatch(master)
    Glibc.unlink(link)
    close(slave)
    close(master)
    (master, slave) = (-1, -1)
  }

  private func ready(_ readiness: EventLoop.Readiness) {
    if readiness.contains(.writable) {
      flush()
      updateInterest()
    }
    for _ in 0..<Descriptor.readsPerTurn {
      guard master >= 0, case .bytes(let bytes) = Descriptor.read(master) else { return }
      received(bytes)
    }
  }

  override func writeOut(_ bytes: ArraySlice<UInt8>) -> Int {
    guard master >= 0 else { return bytes.count }
    var written = 0
    while written < bytes.count {
      guard case .wrote(let count) = Descriptor.write(master, bytes[(bytes.startIndex + written)...]) else { break }
      written += count
    }
    loop.later { [weak self] in self?.updateInterest() }
    return written
  }

  private func updateInterest() {
    guard master >= 0 else { return }
    loop.changeInterest(master, to: wantsToWrite ? [.readable, .writable] : .readable)
  }

  public override func unplug(for duration: Duration) {
    pullOut()
    loop.schedule(after: duration) { [weak self] in
      guard let self, self.master < 0 else { return }
      // Without a pseudo-terminal there is no radio; the next unplugging retries.
      do { try self.plugIn() } catch { Log().error("\(error)") }
    }
  }
}
