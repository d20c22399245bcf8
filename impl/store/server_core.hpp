// The implementation of StoreServer. Unless noted otherwise, everything runs on the server's thread.
#pragma once

#include <array>
#include <asio/ip/tcp.hpp>
#include <asio/steady_timer.hpp>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <unordered_set>
#include <vector>

#include "store/frame.hpp"
#include "store/handshake.hpp"
#include "store/key_table.hpp"
#include "store/server.hpp"

namespace dsc {

class ServerCore;

// One connection, with its handshake, its current request and its will.
class ServerConnection : public std::enable_shared_from_this<ServerConnection> {
 public:
  using Waiting = std::multimap<std::string, ServerConnection*>;
  using Pending = std::list<std::shared_ptr<ServerConnection>>;

  ServerConnection(ServerCore& core, asio::ip::tcp::socket socket);
  ~ServerConnection();
  ServerConnection(const ServerConnection&) = delete;
  ServerConnection& operator=(const ServerConnection&) = delete;

  void greet(Pending::iterator entry);
  // Answers the request of this connection, or lets it wait for a key.
  void serve() noexcept;
  // Called when the key for which the request waits was set.
  void wake() noexcept { waits_at_.reset(); }
  // Like close(), but discards unsent data, so that the kernel keeps nothing of the connection.
  void reset_connection() noexcept;
  void close() noexcept;

  std::chrono::steady_clock::time_point since() const noexcept { return since_; }

  size_t room_wanted() const noexcept { return room_wanted_; }
  void give_room() noexcept;
  // Returns whether a large request was admitted before that time and has not arrived yet, although the
  // server was ready to read it.
  bool keeps_room_since(std::chrono::steady_clock::time_point time) const noexcept;

 private:
  // Runs one step. If it throws because memory runs out, closes only this connection.
  template <typename Step>
  void take_step(Step step) noexcept;

  void read_magic();
  void read_client_hello();
  void check_client_hello();
  void refuse_token();
  void become_member(bool welcome);
  void read_head();
  void take_head();
  void read_rest();
  void take_frame();
  void take_request();
  void ask_for_room();
  void tell_of_room() noexcept;
  StoreReply no_room() const;
  void cancel();
  bool owes_answer() const noexcept { return request_ || room_wanted_ > 0 || owes_room_; }
  void answer(const StoreReply& reply);
  void send(const StoreReply& reply);
  StoreReply carry_out();
  void make_will();
  void carry_out_will() noexcept;
  StoreReply timed_out() const;
  void wait_for(size_t key);
  void expect_slow_reader(bool is_slow) noexcept;
  void stop_waiting() noexcept;
  void leave_room() noexcept;

  ServerCore& core_;
  asio::ip::tcp::socket socket_;
  const std::chrono::steady_clock::time_point since_;
  std::optional<Pending::iterator> pending_entry_;
  std::string server_hello_;
  std::array<char, kClientHelloBytes + kProofBytes> client_hello_;
  std::optional<SessionKeys> keys_;
  std::optional<FrameCounter> incoming_;
  std::optional<FrameCounter> outgoing_;
  std::string in_;
  size_t frame_bytes_ = 0;
  size_t room_wanted_ = 0;  // size of the request that waits for admission, or 0
  size_t room_ = 0;         // bytes of the admitted request, until it is answered or has to wait
  bool owes_room_ = false;  // whether the client must still be told about the admission
  std::chrono::steady_clock::time_point let_in_at_{};
  std::string out_;
  std::optional<StoreRequest> request_;  // set until the answer is sent
  size_t looked_to_ = 0;                 // index of the next key of the request to check
  bool cancelled_ = false;
  std::optional<Waiting::iterator> waits_at_;
  size_t waiting_bytes_ = 0;  // size of the keys of a waiting request, if it has several
  std::optional<StoreRequest> will_;
  bool writing_ = false;
  bool has_slow_reader_ = false;  // a large reply is on its way
};

// The table, the listeners and all connections of a StoreServer.
class ServerCore {
 public:
  explicit ServerCore(StoreServer::Options options);
  ~ServerCore();

  uint16_t listen();
  void start();
  // Takes over an accepted connection.
  void admit(asio::ip::tcp::socket socket);
  asio::io_context& io() noexcept { return io_; }
  StoreServer::Counts counts() const noexcept;
  void retire() noexcept;

 private:
  friend class ServerConnection;

  // A listening socket, and a timer to accept again after descriptors have run out.
  struct Listener {
    explicit Listener(asio::io_context& io) : acceptor(io), retry(io) {}

    asio::ip::tcp::acceptor acceptor;
    asio::steady_timer retry;
  };

  enum class Opened { kYes, kNotHere, kInUse };

  uint16_t try_to_listen();
  Opened open(const SocketAddress& address, uint16_t port);
  void accept(Listener& listener);
  void accept_later(Listener& listener);
  void shed_pending(size_t most);
  void watch_pending();
  void refuse(const char* reason) noexcept;
  // Executes a request that does not have to wait.
  StoreReply apply(const StoreRequest& request);
  void key_changed(const std::string& key);
  // Answers requests as long as the replies that are being sent stay within a limit of bytes.
  void pump() noexcept;
  void sent(size_t bytes) noexcept;

  // Admits large requests in order of arrival, as long as their total size stays within a limit.
  void let_in() noexcept;
  void leave_room(size_t bytes) noexcept;
  void watch_room();

  const StoreServer::Options options_;
  const Nonce incarnation_;
  const Nonce job_;
  asio::io_context io_{1};
  std::list<Listener> listeners_;
  asio::steady_timer watch_{io_};
  bool watching_ = false;
  KeyTable table_;
  ServerConnection::Waiting waiting_;
  ServerConnection::Pending pending_;
  std::unordered_set<std::shared_ptr<ServerConnection>> members_;
  std::deque<std::shared_ptr<ServerConnection>> ready_;
  size_t bytes_on_their_way_ = 0;
  // Connections that wait for admission. A connection that is closed remains in the queue, but wants 0 bytes.
  std::deque<std::shared_ptr<ServerConnection>> in_line_;
  size_t room_taken_ = 0;
  size_t waiting_bytes_ = 0;
  asio::steady_timer room_watch_{io_};
  bool watching_room_ = false;
  uint64_t refused_since_log_ = 0;
  std::chrono::steady_clock::time_point next_log_{};

  std::atomic<bool> retired_{false};
  std::atomic<uint64_t> authenticated_{0};
  std::atomic<uint64_t> refused_{0};
  std::atomic<uint64_t> pending_count_{0};
  std::atomic<uint64_t> members_count_{0};
  std::atomic<uint64_t> waiting_count_{0};
  std::atomic<uint64_t> incoming_bytes_{0};
  std::thread thread_;
};

}  // namespace dsc
