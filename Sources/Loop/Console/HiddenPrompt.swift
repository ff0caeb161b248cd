// SPDX-License-Identifier: MIT

import Glibc
import Synchronization
import UntrustedText

/// Asks for a secret on the terminal. Ctrl-C and Ctrl-Z keep their meaning; getpass(3) would make them part of the
/// secret.
public enum HiddenPrompt {
  private static let signals = [SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGTSTP]
  /// The signal that interrupted the read; 0: none.
  private static let caught = Atomic<Int32>(0)

  /// Reads a line without echo; without a terminal, the first line of standard input. `nil` at the end of input.
  public static func line(_ prompt: String) throws -> String? {
    guard isatty(0) != 0 else { return try TypedText.line() }
    while true {
      let typed = ask(prompt)
      let signal = caught.exchange(0, ordering: .relaxed)
      guard signal != 0 else { return try typed.map { try TypedText.text($0) } }
      // The terminal is restored, and the signal takes its usual effect. After a stop, or where the signal is ignored,
      // the prompt appears again.
      raise(signal)
    }
  }

  private static func ask(_ prompt: String) -> [UInt8]? {
    var saved = termios()
    tcgetattr(0, &saved)
    var hidden = saved
    hidden.c_lflag = hidden.c_lflag & ~tcflag_t(ECHO) | tcflag_t(ICANON | ISIG | ECHONL)
    let before = signals.map { number in
      var (ours, old) = (sigaction(), sigaction())
      // Without SA_RESTART, so that the read ends.
      ours.__sigaction_handler.sa_handler = { HiddenPrompt.caught.store($0, ordering: .relaxed) }
      sigaction(number, &ours, &old)
      return old
    }
    // Discards input that was typed before the prompt.
    tcsetattr(0, TCSAFLUSH, &hidden)
    defer {
      tcsetattr(0, TCSANOW, &saved)
      for (number, old) in zip(signals, before) {
        var old = old
        sigaction(number, &old, nil)
      }
    }
    Console.putError(Visible.line(prompt))
    var bytes: [UInt8] = []
    var byte: UInt8 = 0
    while caught.load(ordering: .relaxed) == 0 {
      let count = read(0, &byte, 1)
      if count < 0, errno == EINTR { continue }
      if count <= 0 { return bytes.isEmpty ? nil : bytes }
      if byte == 10 { return bytes }
      bytes.append(byte)
    }
    Console.putError("\n")
    return nil
  }
}
