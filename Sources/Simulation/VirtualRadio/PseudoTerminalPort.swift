// SPDX-License-Identifier: MIT

import CLinux
import EventLoop
import Glibc

/// A pseudo-terminal that behaves like a radio's USB serial port, under a stable name.
public final class PseudoTerminalPort: RadioPort {
  private let link: String
  private var master: Int32 = -1
  private var slave: Int32 = -1
  /// The slave's path.
  private var name = ""
  private let isForgetful: Bool
  /// How often to check whether a program has the port open.
  private static let glance: Duration = .milliseconds(5)

  /// `link`: the path of a symbolic link, which each `plugIn` creates again. `isForgetful`: when the last program closes the port, unread data is
  /// lost, as on a real serial port.
  public init(_ radio: VirtualRadio, on loop: EventLoop, link: String, isForgetful: Bool = false) throws {
    self.link = link
    self.isForgetful = isForgetful
    super.init(radio, on: loop, .serial)
    try plugIn()
  }

  deinit { pullOut() }

  public override var address: String { "serial:\(link)" }
  override var isPluggedIn: Bool { master >= 0 }
  override var endsWithClient: Bool { false }

  override func plugIn() throws {
    master = posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC)
    guard master >= 0, grantpt(master) == 0, unlockpt(master) == 0, let name = Descriptor.terminalName(of: master)
    else {
      throw SystemError("posix_openpt")
    }
    self.name = name
    // Stays open: without an open slave the master reads EIO, and the line settings are lost.
    slave = open(name, O_RDWR | O_NOCTTY | O_CLOEXEC)
    guard slave >= 0 else { throw SystemError("open \(name)") }
    var line = termios()
    tcgetattr(slave, &line)
    cfmakeraw(&line)
    tcsetattr(slave, TCSANOW, &line)
    let temporary = link + ".new"
    Glibc.unlink(temporary)
    guard symlink(name, temporary) == 0, rename(temporary, link) == 0 else { throw SystemError("symlink \(link)") }
    guard attach(master) else { throw SystemError("epoll_ctl") }
  }

  override func pullOut() {
    cut()
    guard master >= 0 else { return }
    Glibc.unlink(link)
    close(slave)
    close(master)
    (master, slave) = (-1, -1)
  }

  override func rebooted() { unplug(for: .seconds(1)) }

  override func serve() async throws {
    guard isForgetful else { return try await carry() }
    try await loop.race({ try await self.carry() }, { try await self.forgetWhenClosed() })
  }

  /// The master reports this only while no other end is open, so our end is closed for a moment.
  private func forgetWhenClosed() async throws(CancellationError) {
    while true {
      try await loop.sleep(for: Self.glance)
      guard master >= 0 else { return }
      close(slave)
      var look = pollfd(fd: master, events: 0, revents: 0)
      let isAlone = poll(&look, 1, 0) > 0 && look.revents & Int16(POLLHUP) != 0
      slave = open(name, O_RDWR | O_NOCTTY | O_CLOEXEC)
      if isAlone { tcflush(slave, TCIFLUSH) }
    }
  }
}
