// SPDX-License-Identifier: MIT

import ArgumentParser
import Console
import Glibc
import JSON
import PageServer
import UntrustedText

extension WebCommand {
  struct Password: ExchangeCommand {
    static let configuration = CommandConfiguration(
      abstract: "Set the password of the pages that the gateway serves on its network.",
      discussion: """
        For [web] in meshpostd.toml. Asks for the password, or reads the first line of standard input. Everybody who is signed in has \
        to sign in again. `meshpost web` itself needs no password.
        """)
    /// The length of a password that people can type, and that a patient attacker on the network does not find (NIST SP 800-63B, 3.1.1.2).
    private static let shortest = 8
    private static let longest = 1024

    @OptionGroup var connection: Connection
    @Flag(help: "Remove the password: nobody can sign in.") var remove = false

    var exchange: Exchange {
      get throws {
        let hash: JSONValue = remove ? .null : .string(try Self.hash(try Self.ask()))
        return .post("/v1/web/password", body: JSONValue.object([("hash", hash)]).bytes) { answer in
          print(remove ? "password removed: nobody can sign in" : "password set; browsers have to sign in again")
          guard answer["serves"]?.bool == false else { return }
          print(
            "The gateway serves no pages: set `listen` in [web] of meshpostd.toml, then `sudo systemctl reload meshpost`."
          )
        }
      }
    }

    private static func hash(_ password: String) throws -> String {
      guard let hash = PasswordHash.make(password) else { throw Failure.say("not enough memory for scrypt", EX_OSERR) }
      return hash
    }

    private static func ask() throws -> String {
      let password = try HiddenPrompt.line("password: ") ?? ""
      let count = password.unicodeScalars.count
      guard (shortest...longest).contains(count), password.utf8.count <= longest, !Visible.isBlank(password) else {
        throw ValidationError("a password has \(shortest) to \(longest) characters, not only blanks")
      }
      guard isTerminal else { return password }
      guard try HiddenPrompt.line("repeat the password: ") == password else {
        throw ValidationError("the passwords differ")
      }
      return password
    }

    private static var isTerminal: Bool { isatty(0) != 0 }
  }
}
